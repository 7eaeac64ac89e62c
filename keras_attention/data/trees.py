"""Constituency trees as text: how they are read, and how a Transformer writes them.

Section 6.3 of the paper parses by translation, from the words of a sentence to its tree. The tree is
written as in Vinyals et al. 2015, "Grammar as a Foreign Language". A node begins with its label; a phrase
ends with "/" and its label; the words themselves are left out:

    (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))
    S NP NNP /NP VP VBZ NP DT NN /NP /VP . /S

Trees are `nltk.Tree` (the extra `parsing`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nltk import Tree

# Stands for each tag if tags are not wanted, and for a tag that is missing.
ANY_TAG = "XX"
TRACE = "-NONE-"
OUTER_LABELS = ("", "TOP", "ROOT", "S1")
# Other Unicode spaces, such as thin ones, do not separate words.
OTHER_SPACES = re.compile(r"[^\S \t\r\n\f\v]")
BRACKET = re.compile(r"[()]")


def read_trees(text: str, name: str = "text") -> Iterator[Tree]:
    """Reads Penn Treebank trees with nltk's reader, a bracket pair at a time.

    Args:
        text: Trees, each on one or more lines, with only white space between them.
        name: Name of the file, for error messages.

    Yields:
        The unchanged trees: outer brackets, traces and function tags included.

    Raises:
        ValueError: If a tree is broken, or a sentence has none. The message names file and line.

    >>> [tree] = read_trees("( (S (NP-SBJ (NNP John)) (VP (VBZ sleeps))) )")
    >>> tree.leaves()
    ['John', 'sleeps']
    """
    text = OTHER_SPACES.sub("", text)
    depth = start = end = 0
    for bracket in BRACKET.finditer(text):
        if bracket.group() == "(":
            if depth == 0:
                start = bracket.start()
                _check_nothing_between(text, end, start, name)
            depth += 1
            continue
        depth -= 1
        if depth < 0:
            where = _where(text, bracket.start(), name)
            raise ValueError(f'{where}: a ")" closes nothing. Remove it, or add its "(".')
        if depth == 0:
            end = bracket.end()
            yield _read_tree(text, start, end, name)
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
    stripped = _strip(tree)
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


def linearize(tree: Tree, tags: bool = True) -> tuple[list[str], list[str]]:
    """Return the words of a tree, and the symbols that describe everything else.

    Args:
        tree: A tree from `strip_tree`.
        tags: Whether to write part-of-speech tags, or `"XX"` for each. Defaults to True.

    Returns:
        `words` and `symbols`. The symbols hold one tag for each word.

    Raises:
        ValueError: If a label is both a tag and a phrase, so that `delinearize` would be ambiguous.

    >>> [tree] = read_trees("(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))")
    >>> words, symbols = linearize(tree)
    >>> " ".join(words), " ".join(symbols)
    ('John has a dog .', 'S NP NNP /NP VP VBZ NP DT NN /NP /VP . /S')
    >>> " ".join(linearize(tree, tags=False)[1])
    'S NP XX /NP VP XX NP XX XX /NP /VP XX /S'
    """
    words: list[str] = []
    symbols: list[str] = []
    tag_labels = set()

    def visit(node: Tree) -> None:
        label = node.label()
        if not is_phrase(node):
            words.append(node[0])
            symbols.append(label if tags else ANY_TAG)
            tag_labels.add(symbols[-1])
            return
        symbols.append(label)
        for child in node:
            visit(child)
        symbols.append(f"/{label}")

    visit(tree)
    closed = set(symbols)
    both = sorted(label for label in tag_labels if label.startswith("/") or f"/{label}" in closed)
    if both:
        raise ValueError(
            f"A tag must not be a phrase's label as well, nor begin with '/'. Received: {both} as a tag "
            f"in {' '.join(symbols)}"
        )
    return words, symbols


def delinearize(
    words: Sequence[str], symbols: Sequence[str], phrases: Collection[str] | None = None
) -> Tree:
    """The tree that `linearize` wrote.

    Args:
        words: The words of the sentence.
        symbols: The symbols that `linearize` returned.
        phrases: Labels of all phrases. Defaults to those that the symbols close.

    Raises:
        ValueError: If the symbols do not form a tree over these words. (`repair` accepts any symbols.)

    >>> print(delinearize(["John", "sleeps"], "S NP NNP /NP VP VBZ /VP /S".split()))
    (S (NP (NNP John)) (VP (VBZ sleeps)))
    """
    from nltk import Tree

    if phrases is None:
        phrases = {symbol[1:] for symbol in symbols if symbol.startswith("/")}
    root = Tree("", [])
    stack, left = [root], iter(words)
    for place, symbol in enumerate(symbols):
        if stack == [root] and root:
            raise _malformed(f"symbol {place} ({symbol!r}) follows the end of the tree", symbols)
        if symbol.startswith("/"):
            if not stack[-1] or stack[-1].label() != symbol[1:] or len(stack) == 1:
                raise _malformed(f"symbol {place} ({symbol!r}) closes no phrase", symbols)
            stack.pop()
        elif symbol in phrases:
            stack[-1].append(Tree(symbol, []))
            stack.append(stack[-1][-1])
        else:
            word = next(left, None)
            if word is None:
                raise _malformed(f"there are more tags than the {len(words)} words", symbols)
            stack[-1].append(Tree(symbol, [word]))
    if len(stack) > 1 or not root:
        raise _malformed(f"{max(1, len(stack) - 1)} phrases are not closed", symbols)
    if next(left, None) is not None:
        raise _malformed(f"there are fewer tags than the {len(words)} words", symbols)
    return root[0]


def repair(words: Sequence[str], symbols: Sequence[str], phrases: Collection[str]) -> Tree:
    """A tree over exactly these words, whatever the symbols are.

    Well-formed symbols give the tree of `delinearize`. Other symbols are repaired, as in Vinyals et al.
    2015. A closing symbol that matches nothing is left out; one that matches an outer phrase also closes
    the phrases inside it. Phrases without a child and tags without a word are left out. Words without a
    tag get `"XX"`, in the innermost open phrase or in the root. Phrases that are open at the end are
    closed. If several trees remain, `S` joins them.

    Args:
        words: The words of the sentence, at least one.
        symbols: The symbols that a model wrote.
        phrases: Labels of all phrases; other labels are tags.

    Raises:
        ValueError: If there are no words.

    >>> print(repair(["John", "sleeps", "."], "S NP NNP /VP VP VBZ /S /S".split(), {"S", "NP", "VP"}))
    (S (NP (NNP John) (VP (VBZ sleeps))) (XX .))
    """
    from nltk import Tree

    if not words:
        raise ValueError("A tree needs words. Received: words=[]")
    root = Tree("", [])
    stack, left = [root], iter(words)
    for symbol in symbols:
        if symbol.startswith("/"):
            open_labels = [node.label() for node in stack[1:]]
            if symbol[1:] in open_labels:
                while stack.pop().label() != symbol[1:]:
                    pass
        elif symbol in phrases:
            stack[-1].append(Tree(symbol, []))
            stack.append(stack[-1][-1])
        elif (word := next(left, None)) is not None:
            stack[-1].append(Tree(symbol, [word]))
    missing = [Tree(ANY_TAG, [word]) for word in left]
    last = stack[-1]
    if last is root and root and root[-1].label() in phrases:
        last = root[-1]
    last.extend(missing)
    _drop_empty(root)
    if len(root) == 1 and is_phrase(root[0]):
        return root[0]
    root.set_label("S")
    return root


def _read_tree(text: str, start: int, end: int, name: str) -> Tree:
    from nltk import Tree

    try:
        tree = Tree.fromstring(text[start:end])
    except ValueError as error:
        where = _where(text, start, name)
        raise ValueError(f"{where}: a broken tree. nltk's reader: {error}") from error
    for node in tree.subtrees():
        if not node:
            raise ValueError(
                f"{_where(text, start, name)}: a sentence without a tree, or a phrase without words. "
                f"Received: {_short(text[start:end])}"
            )
        if any(isinstance(child, str) for child in node) and (len(node) > 1 or not node.label()):
            raise ValueError(
                f"{_where(text, start, name)}: a tag must stand before each word, as in (NN dog). "
                f"Received: {node}"
            )
    return tree


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
