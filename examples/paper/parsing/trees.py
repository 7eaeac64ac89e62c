"""Constituency trees as text: how they are read, and how a Transformer writes them.

Section 6.3 of the paper parses by translation, from the words of a sentence to its tree. The tree is
written as in Vinyals et al. 2015, "Grammar as a Foreign Language": a bracket and a label where a phrase
begins and where it ends, and a tag for each word:

    (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))
    (S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S

Or the words stand in it, without tags, as in Choe and Charniak 2016, "Parsing as Language Modeling":

    (S (NP John )NP (VP has (NP a dog )NP )VP . )S

Trees are `nltk.Tree` (the extra `parsing`), and their words are plain text. Files and symbols have
`-LRB-` and `-RRB-` for the brackets in words, as the Penn Treebank does: see `escape_word`.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from keras_attention.utils.checks import check_choice, check_has, check_text, check_texts

if TYPE_CHECKING:
    from nltk import Tree

# Stands for each tag if tags are not wanted, and for a tag that is missing.
ANY_TAG = "XX"
# What a linearised tree has for each word.
LEAVES = ("tags", "XX", "words")
TRACE = "-NONE-"
OUTER_LABELS = ("", "TOP", "ROOT", "S1")
# Other Unicode spaces, such as thin ones, do not separate words.
OTHER_SPACES = re.compile(r"[^\S \t\r\n\f\v]")
BRACKET = re.compile(r"[()]")
# Brackets in brackets: deeper trees are no sentences, and Python could not walk through them.
DEEPEST = 200
DEEPEST_PHRASES = DEEPEST - 2  # without a word's tag and the outer pair
# What cannot stand in a word of a tree has a name: brackets the treebank's, white space its number.
BRACKET_NAMES = {"(": "LRB", ")": "RRB"}
BRACKETS_NAMED = {"LRB": "(", "RRB": ")"}
_NAME = "[LR]RB|U(?:000[9A-D]|001[C-F]|0020|0085|00A0|1680|200[0-9A]|202[89F]|205F|3000)"
# A backslash before a name says that it is part of the word; further ones before it are doubled.
_TO_ESCAPE = re.compile(rf"(\\*)([()\s]|-(?={_NAME}))")
_ESCAPED = re.compile(rf"((?:\\\\)*)(?:\\(-)(?={_NAME})|-({_NAME})-)")


def escape_word(word: str) -> str:
    """Return the form of a word in a file or a symbol: without brackets and white space, and never ambiguous.

    Slashes, stars and other brackets stay: some treebanks escape them, others do not.

    Raises:
        ValueError: If the word is empty.

    >>> [escape_word(word) for word in ("(", "t(est)", "1/2", "New York", "-LRB-")]
    ['-LRB-', 't-LRB-est-RRB-', '1/2', 'New-U0020-York', '\\\\-LRB-']
    """
    if not word:
        raise ValueError("A word needs at least one character. Received: word=''")
    return _TO_ESCAPE.sub(lambda found: 2 * found[1] + _named(found[2]), word)


def _named(character: str) -> str:
    if character == "-":
        return "\\-"
    return f"-{BRACKET_NAMES.get(character) or f'U{ord(character):04X}'}-"


def unescape_word(written: str) -> str:
    """Return the word that `escape_word` wrote.

    >>> unescape_word("t-LRB-est-RRB-"), unescape_word(escape_word("-LRB-"))
    ('t(est)', '-LRB-')
    """
    return _ESCAPED.sub(lambda found: found[1][::2] + (found[2] or _character(found[3])), written)


def _character(name: str) -> str:
    return BRACKETS_NAMED.get(name) or chr(int(name[1:], 16))


def write_tree(tree: Tree) -> str:
    """Return the tree on one line, from which `read_trees` reads the same tree.

    Raises:
        ValueError: If a phrase or a word is empty, or a label has a bracket or white space.

    >>> from nltk import Tree
    >>> write_tree(Tree("NP", [Tree("-LRB-", ["("]), Tree("NN", ["t(est)"])]))
    '(NP (-LRB- -LRB-) (NN t-LRB-est-RRB-))'
    """
    if isinstance(tree, str):
        return escape_word(tree)
    if not len(tree):
        raise ValueError(f"A phrase without words cannot be written. Received: {tree!r}")
    return f"({_label(tree)} {' '.join(map(write_tree, tree))})"


def read_trees(text: str, name: str = "text", strip: bool = False) -> Iterator[Tree]:
    """Read Penn Treebank trees with nltk's reader, a bracket pair at a time.

    Args:
        text: Trees, each on one or more lines, with only white space between them.
        name: Name of the file, for error messages.
        strip: Whether to apply `strip_tree`. Defaults to False: the trees keep their outer brackets, traces
            and function tags.

    Yields:
        The trees. Their words are unescaped by `unescape_word`.

    Raises:
        ValueError: If a tree is broken, a sentence has none, or, with `strip`, a tree has no words. The
            message names file and line.

    >>> [tree] = read_trees("( (S (NP-SBJ (NNP John)) (VP (VBZ sleeps))) )")
    >>> tree.leaves()
    ['John', 'sleeps']
    """
    text = OTHER_SPACES.sub("", check_text("text", text))
    depth = start = end = 0
    for bracket in BRACKET.finditer(text):
        if bracket.group() == "(":
            if depth == 0:
                start = bracket.start()
                _check_nothing_between(text, end, start, name)
            depth += 1
            if depth > DEEPEST:
                where = _where(text, start, name)
                raise ValueError(f"{where}: a tree of more than {DEEPEST} levels begins here.")
            continue
        depth -= 1
        if depth < 0:
            where = _where(text, bracket.start(), name)
            raise ValueError(f'{where}: a ")" closes nothing. Remove it, or add its "(".')
        if depth == 0:
            end = bracket.end()
            yield _read_tree(text, start, end, name, strip)
    if depth:
        raise ValueError(
            f'{_where(text, start, name)}: {depth} ")" missing in the tree that begins here.'
        )
    _check_nothing_between(text, end, len(text), name)


def strip_tree(tree: Tree) -> Tree:
    """Return the tree in the form that parsers are trained and scored on.

    Traces, phrases that are empty without them, and the outer pair of brackets are dropped. Labels lose
    their functions: `NP-SBJ-1` becomes `NP`. The argument is not changed.

    Raises:
        ValueError: If the tree has no words.

    >>> [tree] = read_trees("( (S (NP-SBJ (-NONE- *)) (VP (VB Go) (ADVP-DIR (RB home)))) )")
    >>> print(strip_tree(tree))
    (S (VP (VB Go) (ADVP (RB home))))
    """
    stripped = _strip(check_has("tree", tree, "an nltk Tree", "label", "leaves"))
    if stripped is None:
        raise ValueError(f"The tree has no words. Received: {tree}")
    while stripped.label() in OUTER_LABELS and len(stripped) == 1 and is_phrase(stripped[0]):
        stripped = stripped[0]
    if not stripped.label():
        stripped.set_label("TOP")  # several trees in one pair of brackets
    return stripped


def is_phrase(node: Tree | str) -> bool:
    """Whether a node is a phrase, rather than a tag over its word, or a word."""
    return not isinstance(node, str) and not isinstance(node[0], str)


def is_bracket(symbol: str) -> bool:
    """Whether a symbol opens or closes a phrase; other symbols are leaves."""
    return symbol[:1] in ("(", ")")


def linearize(tree: Tree, leaves: str = "tags") -> tuple[list[str], list[str]]:
    """Return the words of a tree, and the tree as a list of symbols.

    Args:
        tree: A tree from `strip_tree`.
        leaves: What is written for each word: `"tags"`, its part-of-speech tag; `"XX"`, the same for
            every word; `"words"`, the word itself, as `escape_word` writes it. Defaults to `"tags"`.

    Returns:
        `words` and `symbols`. The symbols hold one leaf for each word.

    Raises:
        ValueError: If `leaves` is none of these, a word is empty, or a label has a bracket or white space.

    >>> [tree] = read_trees("(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))")
    >>> words, symbols = linearize(tree)
    >>> " ".join(words), " ".join(symbols)
    ('John has a dog .', '(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S')
    >>> " ".join(linearize(tree, "XX")[1])
    '(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S'
    >>> " ".join(linearize(tree, "words")[1])
    '(S (NP John )NP (VP has (NP a dog )NP )VP . )S'
    """
    check_choice("leaves", leaves, LEAVES)
    check_has("tree", tree, "an nltk Tree", "label", "leaves")
    words: list[str] = []
    symbols: list[str] = []

    def visit(node: Tree) -> None:
        label = _label(node)
        if is_phrase(node):
            symbols.append(f"({label}")
            for child in node:
                visit(child)
            symbols.append(f"){label}")
            return
        words.append(node[0])
        written = escape_word(node[0])
        symbols.append({"tags": label, "XX": ANY_TAG, "words": written}[leaves])

    visit(tree)
    return words, symbols


def delinearize(words: Sequence[str], symbols: Sequence[str], leaves: str = "tags") -> Tree:
    """Return the tree that `linearize` wrote.

    Args:
        words: The words of the sentence.
        symbols: The symbols that `linearize` returned.
        leaves: What the symbols have for each word, as in `linearize`. Without tags, each tag of the
            tree is `"XX"`.

    Raises:
        ValueError: If the symbols do not form a tree over these words. (`repair` accepts any symbols.)

    >>> print(delinearize(["John", "sleeps"], "(S (NP NNP )NP (VP VBZ )VP )S".split()))
    (S (NP (NNP John)) (VP (VBZ sleeps)))
    >>> print(delinearize(["John", "sleeps"], "(S (NP John )NP (VP sleeps )VP )S".split(), "words"))
    (S (NP (XX John)) (VP (XX sleeps)))
    """
    from nltk import Tree

    check_choice("leaves", leaves, LEAVES)
    words, symbols = check_texts("words", words), check_texts("symbols", symbols)
    root = Tree("", [])
    stack, left = [root], iter(words)
    for place, symbol in enumerate(symbols):
        if stack == [root] and root:
            raise _malformed(f"symbol {place} ({symbol!r}) follows the end of the tree", symbols)
        if symbol.startswith(")"):
            if not stack[-1] or stack[-1].label() != symbol[1:] or len(stack) == 1:
                raise _malformed(f"symbol {place} ({symbol!r}) closes no phrase", symbols)
            stack.pop()
        elif symbol.startswith("("):
            if len(stack) > DEEPEST_PHRASES:
                raise _malformed(f"more than {DEEPEST_PHRASES} phrases are open", symbols)
            stack[-1].append(Tree(symbol[1:], []))
            stack.append(stack[-1][-1])
        else:
            word = next(left, None)
            if word is None:
                raise _malformed(f"there are more leaves than the {len(words)} words", symbols)
            if leaves == "words" and symbol != escape_word(word):
                raise _malformed(f"symbol {place} is {symbol!r}, the word is {word!r}", symbols)
            stack[-1].append(Tree(ANY_TAG if leaves == "words" else symbol, [word]))
    if len(stack) > 1 or not root:
        raise _malformed(f"{max(1, len(stack) - 1)} phrases are not closed", symbols)
    if next(left, None) is not None:
        raise _malformed(f"there are fewer leaves than the {len(words)} words", symbols)
    return root[0]


def repair(words: Sequence[str], symbols: Sequence[str], leaves: str = "tags") -> Tree:
    """Return a tree over exactly these words, whatever the symbols are.

    Well-formed symbols give the tree of `delinearize`. Other symbols are repaired, as in Vinyals et al.
    2015. A closing symbol that matches nothing is left out; one that matches an outer phrase also closes
    the phrases inside it. Phrases without a child and leaves without a word are left out. Words without a
    leaf get the tag `"XX"`, in the innermost open phrase or in the root. Phrases that are open at the end
    are closed, and those beyond 198 levels are never opened. If several trees remain, `S` joins them.

    Args:
        words: The words of the sentence, at least one.
        symbols: The symbols that a model wrote.
        leaves: What the symbols have for each word, as in `linearize`. Tags belong to the words in their
            order. Words belong to the same words; a missing word is put before the next one.

    Raises:
        ValueError: If there are no words.

    >>> print(repair(["John", "sleeps", "."], "(S (NP NNP )VP (VP VBZ )S )S".split()))
    (S (NP (NNP John) (VP (VBZ sleeps))) (XX .))
    >>> print(repair(["John", "sleeps", "."], "(S (NP Joan )NP (VP sleeps )VP . )S".split(), "words"))
    (S (VP (XX John) (XX sleeps)) (XX .))
    """
    from nltk import Tree

    check_choice("leaves", leaves, LEAVES)
    if not words:
        raise ValueError("A tree needs words. Received: words=[]")
    with contextlib.suppress(ValueError):
        return delinearize(words, symbols, leaves)
    placed = [symbol for symbol in symbols if not is_bracket(symbol)]
    # For each leaf, how many words are in the tree once it is; 0 for a leaf that is left out.
    written = list(map(escape_word, words))
    ends = iter(_aligned(written, placed) if leaves == "words" else range(1, len(placed) + 1))
    root = Tree("", [])
    stack, done = [root], 0
    for symbol in symbols:
        if symbol.startswith(")"):
            open_labels = [node.label() for node in stack[1:]]
            if symbol[1:] in open_labels:
                while stack.pop().label() != symbol[1:]:
                    pass
        elif symbol.startswith("("):
            if len(stack) <= DEEPEST_PHRASES:
                stack[-1].append(Tree(symbol[1:], []))
                stack.append(stack[-1][-1])
        else:
            tag, end = (ANY_TAG if leaves == "words" else symbol), next(ends)
            stack[-1].extend(Tree(tag, [word]) for word in words[done:end])
            done = max(done, end)
    missing = [Tree(ANY_TAG, [word]) for word in words[done:]]
    last = stack[-1]
    if last is root and root and not (root[-1] and isinstance(root[-1][0], str)):
        last = root[-1]
    last.extend(missing)
    _drop_empty(root)
    if len(root) == 1 and is_phrase(root[0]):
        return root[0]
    root.set_label("S")
    return root


def _aligned(words: Sequence[str], found: Sequence[str]) -> list[int]:
    """For each word found, the number of words up to it; 0 if it is none of the sentence's in this order."""
    ends = [0] * len(found)
    blocks = difflib.SequenceMatcher(None, words, found, autojunk=False).get_matching_blocks()
    for block in blocks:
        for place in range(block.size):
            ends[block.b + place] = block.a + place + 1
    return ends


def _read_tree(text: str, start: int, end: int, name: str, strip: bool) -> Tree:
    from nltk import Tree

    def broken(reason: object) -> ValueError:
        return ValueError(f"{_where(text, start, name)}: {reason}")

    try:
        # To nltk, a bracket after a backslash is none.
        apart = text[start:end].replace("\\)", "\\ )")
        tree = Tree.fromstring(apart, read_leaf=unescape_word)
    except ValueError as error:
        raise broken(f"a broken tree. nltk's reader: {error}") from error
    for node in tree.subtrees():
        if not node:
            raise broken(
                "a sentence without a tree, or a phrase without words. "
                f"Received: {_short(text[start:end])}"
            )
        if any(isinstance(child, str) for child in node) and (len(node) > 1 or not node.label()):
            raise broken(f"a tag must stand before each word, as in (NN dog). Received: {node}")
    try:
        return strip_tree(tree) if strip else tree
    except ValueError as error:
        raise broken(error) from error


def _check_nothing_between(text: str, start: int, end: int, name: str) -> None:
    between = text[start:end]
    if between.strip():
        start += len(between) - len(between.lstrip())
        raise ValueError(
            f"{_where(text, start, name)}: a sentence without a tree. Expected: brackets, as in "
            f"( (S (NP (NN dog)))). Received: {_short(between)}"
        )


def _where(text: str, place: int, name: str) -> str:
    return f"{name}, line {text.count(chr(10), 0, place) + 1}"


def _label(node: Tree) -> str:
    label = node.label()
    if re.search(r"[()\s]", label) or not (label or is_phrase(node)):
        raise ValueError(
            "A label has no brackets and no white space, and a tag is not empty. "
            f"Received: {label!r} in {node}"
        )
    return label


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 80 else f"{words[:80]}..."


def _malformed(reason: str, symbols: Sequence[str]) -> ValueError:
    return ValueError(f"`symbols` do not form a tree: {reason}. Received: {' '.join(symbols)}")


def _strip(node: Tree) -> Tree | None:
    from nltk import Tree

    label = node.label()
    if label == TRACE:
        return None
    if label[:1] != "-":  # -LRB- and -RRB- are whole labels
        label = re.split("[-=]", label, maxsplit=1)[0]
    if not is_phrase(node):
        return Tree(label, list(node))
    children = [child for child in map(_strip, node) if child is not None]
    return Tree(label, children) if children else None


def _drop_empty(node: Tree) -> None:
    """Remove phrases that contain no word."""
    for child in list(node):
        if not isinstance(child, str):
            _drop_empty(child)
    node[:] = [child for child in node if isinstance(child, str) or len(child)]
