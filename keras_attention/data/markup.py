"""Tags and placeholders in a text: taken out before it is translated, and put back by word alignment.

The method is "detag and project" ([Hanneman and Dinu 2020](https://aclanthology.org/2020.wmt-1.138/)): the
model reads plain text, and the words that a tag encloses are found in the translation by the alignment.
"""

from __future__ import annotations

import html
import html.entities
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from keras_attention.data import markup_places
from keras_attention.utils.arguments import checked
from keras_attention.utils.scripts import is_letter

# Every repetition ends at the next "<" or "<!--", or has a limit, so that hostile text takes no more than
# linear time.
TAG = r"""<(?P<slash>/?)(?P<name>[A-Za-z][\w:.-]*)(?P<rest>(?:[\s/]
    (?:[^<>"']|"[^"<]*"|'[^'<]*'|"[^"]{0,1000}"|'[^']{0,1000}'){0,1000}+)?)>"""
COMMENT = r"<!--(?:[^<-]|<(?!!--)|-(?!->))*+-->|<[!?][^<>]*>"
# Elements whose inside is no text.
KEPT = r"""(?i:<(?P<kept>code|pre|script|style)(?:\s[^<>]*)?>
    (?:[^<]|<(?!/?(?P=kept)[\s>]))*+</(?P=kept)\s*>)"""
ENTITY = r"&(?:\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
PLACEHOLDER = r"""
    \{\{[ ]?[^\s{}<>&]{0,100}[ ]?\}\}                     # {{name}}
    | [$%#]?\{[^\s{}<>&]{0,100}\}                         # {0} ${name}
    | (?<![\d%])%(?:\(\w{1,100}\)|\d{1,2}\$)?             # %(name)s %1$d
      [-+#0]{0,3}\d{0,3}(?:\.\d{1,3})?(?:hh?|ll?|z)?[diouxXeEfFgGcrsn@]
    | (?<![\d%])%\d{1,2}                                  # %1
"""
MARK = re.compile(
    f"(?P<tag>{KEPT}|{TAG}|{COMMENT})|(?P<entity>{ENTITY})|(?P<placeholder>{PLACEHOLDER})", re.X
)
# No sentence of HTML goes on behind these.
BLOCK = re.compile(
    "address|article|aside|blockquote|body|br|button|caption|center|dd|details|dialog|div|dl|dt|fieldset|"
    "figcaption|figure|footer|form|h[1-6]|head|header|hr|html|legend|li|link|main|meta|nav|ol|optgroup|option|"
    "p|pre|script|section|select|style|summary|table|tbody|td|textarea|tfoot|th|thead|title|tr|ul",
    re.IGNORECASE,
)
# The line ends of texts. The tokenizer takes all others as white space.
LINE_END = re.compile(r"(\r\n|\r|\n)")
# What follows a word without a space.
CLOSING = frozenset(".,;:!?…)]}")


@checked
def placeholders_of(text: str) -> Counter[str]:
    """Return how often each placeholder occurs in a text.

    >>> placeholders_of("%s of {0} and {0}: 5 % so far")
    Counter({'{0}': 2, '%s': 1})
    """
    return Counter(match[0] for match in MARK.finditer(text) if match["placeholder"])


def split_blocks(text: str) -> list[str]:
    """Return the texts between the blocks of HTML, each followed by the tag that ends it.

    If there is no tag, they are the lines.

    >>> split_blocks("<p>One <b>dog</b>.</p>Two")
    ['', '<p>', 'One <b>dog</b>.', '</p>', 'Two']
    """
    parts: list[str] = []
    end, tags = 0, [match for match in MARK.finditer(text) if match["tag"]]
    for match in tags:
        name = match["name"] or match["kept"]
        if name is None or BLOCK.fullmatch(name):
            parts += [text[end : match.start()], match[0]]
            end = match.end()
    return [*parts, text[end:]] if tags else LINE_END.split(text)


class Markup:
    """A text with tags and placeholders, and its plain text.

    Tags in pairs enclose words. All else stands by itself: `<br/>`, comments, a tag without its partner, and
    placeholders such as `{0}`, `${name}`, `{{name}}`, `%s`, `%(name)s` and `%1`. A `<` that begins no tag is
    text. Entities such as `&amp;` are read as what they stand for. The elements `code`, `pre`, `script` and
    `style` have no text inside, and stay as they are.

    Args:
        text: The text.
        protects: Whether placeholders are taken out of the plain text, too. Defaults to True.
        symbols: What looks like a tag but is text, such as the symbols of a tokenizer. Defaults to none.

    Attributes:
        plain: The text without what was taken out.
        has_marks: Whether anything was, or an entity was read.

    Example:

    >>> markup = Markup("Press <b>OK</b> in {name}.")
    >>> markup.plain
    'Press OK in.'
    >>> markup.carried("Jetzt OK in drücken.", [(0, 3), (1, 1), (2, 2)])
    'Jetzt <b>OK</b> in {name} drücken.'
    """

    @checked
    def __init__(self, text: str, protects: bool = True, symbols: Collection[str] = ()):
        self._symbols = symbols
        items = list(_items(text, protects, symbols))
        marks = [item for item in items if item.kind != "text" or item.is_entity]
        self.has_marks = bool(marks)
        self._is_markup = any(mark.is_entity or mark.text.startswith("<") for mark in marks)
        self._root = markup_places.Mark()
        self.plain = _flat(items, self._root) if self.has_marks else text
        self._words = markup_places.Words(self.plain)
        markup_places.number_marks(self._root, self._words)

    @checked
    def carried(self, translation: str, links: Sequence[tuple[int, int]]) -> str:
        """Return a translation of the plain text with the marks at the aligned places.

        Each mark is there once, and pairs are nested as in the text. A pair encloses the words in a row that
        hold the most of its own and the fewest of others. What stands by itself stays beside a neighbour.
        If the text has tags or entities, `<`, `>` and `&` in the translation become entities.

        Args:
            translation: The translation of `plain`.
            links: Pairs of a word of `plain` and a word of the translation, numbered from 0. A word is what
                stands between spaces; in scripts without spaces, such as Chinese and Thai, a letter.

        Returns:
            The translation with the marks; as it is if there are none.

        Raises:
            ValueError: If a link has a word that is not there.
        """
        target = markup_places.Words(translation)
        links = markup_places.check_links(links, self._words, target)
        if not self.has_marks:
            return translation
        markup_places.place_marks(self._root, self._words, target, links)
        texts = [
            html.escape(text, quote=False) if self._is_markup else text for text in target.texts
        ]
        carried = markup_places.joined(self._root, texts, target)
        for symbol in self._symbols:  # They are text, and no tags in the translation either.
            carried = carried.replace(html.escape(symbol, quote=False), symbol)
        return carried


class _Item(NamedTuple):
    """A piece of text, or a mark: `kind` is text, open, close or alone."""

    text: str
    kind: str = "text"
    name: str = ""
    is_entity: bool = False


def _items(text: str, protects: bool, symbols: Collection[str]) -> Iterator[_Item]:
    """Yield the pieces of a text in order; tags without a partner stand alone."""
    found, end = [], 0
    for match in MARK.finditer(text):
        if match[0] in symbols or (match["placeholder"] and not protects):
            continue
        if match["entity"] and "#" not in match[0] and match[0][1:] not in html.entities.html5:
            continue
        found.append(_Item(text[end : match.start()]))
        end = match.end()
        if match["entity"]:
            found.append(_Item(html.unescape(match[0]), is_entity=True))
        elif match["name"] and not match["rest"].endswith("/"):
            kind = "close" if match["slash"] else "open"
            found.append(_Item(match[0], kind, match["name"].lower()))
        else:
            found.append(_Item(match[0], "alone"))
    found.append(_Item(text[end:]))
    paired = _paired(found)
    for number, item in enumerate(found):
        is_single = item.kind in ("open", "close") and number not in paired
        if item.text:
            yield item._replace(kind="alone") if is_single else item


def _paired(items: list[_Item]) -> set[int]:
    """Return the numbers of the tags that have a partner: to close is to close the last one of the name."""
    paired: set[int] = set()
    waiting: list[int] = []
    names: Counter[str] = Counter()
    for number, item in enumerate(items):
        if item.kind == "open":
            waiting.append(number)
            names[item.name] += 1
        elif item.kind == "close" and names[item.name]:
            while True:
                opened = waiting.pop()
                names[items[opened].name] -= 1
                if items[opened].name == item.name:
                    break
            paired |= {opened, number}
    return paired


def _flat(items: list[_Item], root: markup_places.Mark) -> str:
    """Return the plain text of pieces, with single spaces, and hang the marks below the root."""
    plain: list[str] = []
    length, opened = 0, [root]
    has_space = was_alone = False
    for number, item in enumerate(items):
        if item.kind == "text":
            words = " ".join(item.text.split())
            begins_with_space = item.text[0].isspace()
            has_space |= begins_with_space
            if words:
                if was_alone and not begins_with_space:
                    # What is taken out leaves no gap before a stop, and joins no words.
                    if words[0] in CLOSING:
                        has_space = False
                    elif plain and is_letter(words[0]) and is_letter(plain[-1][-1]):
                        has_space = True
                if has_space and plain:
                    words = f" {words}"
                plain.append(words)
                length += len(words)
                has_space, was_alone = item.text[-1].isspace(), False
            continue
        if item.kind == "close":
            closed = opened.pop()
            closed.closing, closed.end = item.text, length
        else:
            mark = markup_places.Mark(item.text, start=length, end=length)
            opened[-1].inside.append(mark)
            if item.kind == "open":
                opened.append(mark)
            else:
                before, behind = items[number - 1 : number], items[number + 1 : number + 2]
                mark.spaces = _space(before, -1), _space(behind, 0)
                was_alone = True
    return "".join(plain)


def _space(beside: list[_Item], end: int) -> bool | None:
    """Whether a mark has a space beside it: False if a letter or digit of a word, else None."""
    if not beside or beside[0].kind != "text":
        return None
    letter = beside[0].text[end]
    return True if letter.isspace() else False if is_letter(letter) else None
