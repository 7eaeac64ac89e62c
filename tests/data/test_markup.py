"""Tags and placeholders carried over by alignments: written-out cases, and properties of random ones."""

import re
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest

from keras_attention.data.markup import Markup, placeholders_of, split_blocks

pytestmark = pytest.mark.backends("tensorflow")  # needs none

SAME = [(i, i) for i in range(9)]


@pytest.mark.parametrize(
    "text, plain, translation, links, expected",
    [
        # A pair goes where its word goes, without the stop at its end.
        ("Press <b>OK</b>.", "Press OK.", "OK drücken.", "0-1 1-0", "<b>OK</b> drücken."),
        ("<b>Press OK.</b>", "Press OK.", "OK drücken.", "0-1 1-0", "<b>OK drücken.</b>"),
        ("<b>Press OK.</b>", "Press OK.", "OK drücken.", "", "<b>OK drücken.</b>"),
        ('A "<i>dog</i>"!', 'A "dog"!', 'Ein "Hund"!', "0-0 1-1", 'Ein "<i>Hund</i>"!'),
        ("un<b>like</b>ly so", "unlikely so", "kaum so", "0-0 1-1", "<b>kaum</b> so"),
        # Nested pairs change their order, each inside its own.
        (
            "<p>I <b>like</b> to <u>drive</u> this.</p>",
            "I like to drive this.",
            "Ich fahre gern dies.",
            "0-0 1-2 3-1 4-3",
            "<p>Ich <u>fahre</u> <b>gern</b> dies.</p>",
        ),
        ("a <i>b <b>c</b></i> d", "a b c d", "D C B A", "0-3 1-2 2-1 3-0", "D <i><b>C</b> B</i> A"),
        # Of words that are apart, most of its own and fewest others: 1-1 is far from the rest, 2-3 is not.
        (
            "<b>a b c</b> d e",
            "a b c d e",
            "A D E X B C",
            "0-0 1-4 2-5 3-1 4-2",
            "A D E X <b>B C</b>",
        ),
        ("<b>a b c</b> d", "a b c d", "A D B C", "0-0 1-2 2-3 3-1", "A D <b>B C</b>"),
        ("<b>a b c e</b> d", "a b c e d", "A B D C E", "0-0 1-1 2-3 3-4 4-2", "<b>A B D C E</b>"),
        # One word for two pairs: the first gets it, the second is empty, and still there.
        ("<b>x</b> <i>y</i> z", "x y z", "XY Z", "0-0 1-0 2-1", "<b>XY</b> <i></i>Z"),
        # What was not translated leaves its tags between its neighbours.
        ("go <b>on</b> now", "go on now", "gehe nun", "0-0 2-1", "gehe <b></b>nun"),
        # What stands alone: beside the neighbour, with spaces as in the text.
        ("in {name} now.", "in now.", "Nun in.", "0-1 1-0", "Nun in {name}."),
        ("in {name}.", "in.", "in.", "0-0", "in {name}."),
        ("{n} is", "is", "ist", "0-0", "{n} ist"),
        ("not open %s", "not open", "nicht öffnen", "0-0 1-1", "nicht öffnen %s"),
        ("a <x/>b c", "a b c", "C B A", "0-2 1-1 2-0", "C <x/>B A"),
        ("a<br/>b", "a b", "A B", "0-0 1-1", "A<br/> B"),
        ("a<br/><br/>b", "a b", "A B", "0-0 1-1", "A<br/><br/> B"),
        ("<b>{0} x</b> y", "x y", "Y X", "0-1 1-0", "Y <b>{0} X</b>"),
        # Tags without a partner stand alone, and so do crossing ones.
        ("a <br> b", "a b", "A B", "0-0 1-1", "A <br> B"),
        ("</i>a <b>b", "a b", "B A", "0-1 1-0", "</i> <b>B A"),
        ("<b>a <i>b</b> c</i>", "a b c", "A B C", "0-0 1-1 2-2", "<b>A <i>B</b> C</i>"),
        # Entities are read, and written again; a "<" that begins no tag is text.
        ("a &lt; b &amp;c", "a < b &c", "A < B &C", "0-0 1-1", "A &lt; B &amp;C"),
        ("1 < 2 <b>x</b>", "1 < 2 x", "1 < 2 X", "3-3", "1 &lt; 2 <b>X</b>"),
        ("AT&T &nosuch; a<b", "AT&T &nosuch; a<b", "AT&T <b>", "", "AT&T <b>"),
        # Code and the kind of a document are no text.
        ("a <code>if (x<y) b</code> c", "a c", "C A", "0-1 1-0", "C A <code>if (x<y) b</code>"),
        ("<!DOCTYPE html>a", "a", "A", "0-0", "<!DOCTYPE html>A"),
        # A comment stays, whatever is in it; one that does not end is text.
        (
            "a<!-- 1 < 2 - <b>x</b> -- <!- y -->b",
            "a b",
            "A B",
            "0-0 1-1",
            "A<!-- 1 < 2 - <b>x</b> -- <!- y --> B",
        ),
        ("a <!-- <b>c</b>", "a <!-- c", "A <!-- C", "2-2", "A &lt;!-- <b>C</b>"),
        ("<x y='<b>' z=\"a < b\"/>a", "a", "A", "0-0", "<x y='<b>' z=\"a < b\"/>A"),
        # Scripts without spaces: each letter with its marks is a word, what is Latin among them is one.
        (
            "我<b>喜欢</b>猫。",
            "我喜欢猫。",
            "I like cats.",
            "0-0 1-1 2-1 3-2",
            "I <b>like</b> cats.",
        ),
        (
            "I <b>like</b> cats.",
            "I like cats.",
            "我喜欢猫。",
            "0-0 1-1 1-2 2-3",
            "我<b>喜欢</b>猫。",
        ),
        ("I like <b>cats.</b>", "I like cats.", "猫が好き。", "2-0 1-2 1-3", "<b>猫</b>が好き。"),
        ("ฉัน<i>ชอบ</i>แมว", "ฉันชอบแมว", "I like cats", "0-0 2-1 3-1 5-2", "I <i>like</i> cats"),
        ("有《<b>OK</b>》猫", "有《OK》猫", "cat OK", "1-1 2-0", "cat <b>OK</b>"),
        ("点{0}按。", "点按。", "Press it.", "0-0 1-1", "Press {0} it."),
        ("a {0} b", "a b", "猫狗", "0-0 1-1", "猫 {0} 狗"),
        ("<b>OK</b>我", "OK我", "OK我", "0-0 1-1", "<b>OK</b>我"),
        # Punctuation that has gone parted what would be another placeholder, or a word.
        ("%1: the file", ": the file", "2 Dateien", "2-1", "%1 2 Dateien"),
        ("Stop: '%s'", "Stop: ''", "Halt", "0-0", "Halt %s"),
        # Nothing but marks.
        ("<br/>", "", "", "", "<br/>"),
        ("<b><i></i></b>{0} %s", "", "", "", "<b><i></i></b>{0} %s"),
        ("<b>a</b>", "a", "", "", "<b></b>"),
    ],
)
def test_written_out_alignments(text, plain, translation, links, expected):
    markup = Markup(text)
    links = [tuple(map(int, link.split("-"))) for link in links.split()]
    assert markup.plain == plain
    assert markup.carried(translation, links) == expected
    assert markup.carried(translation, links) == expected  # nothing is used up


@pytest.mark.parametrize(
    "text, texts",
    [
        ("a\nb\r\nc &amp; d", ["a", "b", "c &amp; d"]),
        ("<b>a\nb</b>", ["<b>a\nb</b>"]),
        (
            "<UL>\n<li>a <i>b</i></LI>\n<li class='x > y'>c<br/>d</ul>e",
            ["a <i>b</i>", "c", "d", "e"],
        ),
        ("a<pre>b\n <p>c</pre>d<!-- e\nf -->g", ["a", "d", "g"]),
        ("a<SCRIPT>if (x<y) b</p></script >c<style></style>d", ["a", "c", "d"]),
        ("<!--[if IE]><p>a</p><![endif]-->b<!---->c", ["b", "c"]),
        ("<!DOCTYPE html><p>Press <code>a<p>b</code>.", ["Press <code>a<p>b</code>."]),
        ("1 <p 2 </p >c", ["1 <p 2 ", "c"]),
    ],
)
def test_texts_between_blocks(text, texts):
    parts = split_blocks(text)
    assert [part for part in parts[::2] if part.strip()] == texts
    assert "".join(parts) == text


def test_placeholders():
    text = "%s {0} {0} {user.name} ${x} {{ y }} %(z)d %1$s %5.2f %d%s %1 #{r} 5 % so 100%ige {a b} 20%d { }"
    expected = "%s {0} {0} {user.name} ${x} {{ y }} %(z)d %1$s %5.2f %d %s %1 #{r}".split()
    joined = Counter([*expected[:5], "{{ y }}", *expected[8:]])
    assert placeholders_of(text) == joined
    kept = Markup("<b>%s</b> of {0}", protects=False)
    assert kept.plain == "%s of {0}"
    assert kept.carried("{0}: %s", [(0, 1), (2, 0)]) == "{0}: <b>%s</b>"


@pytest.mark.parametrize(
    "link, side", [((2, 0), "source"), ((0, 3), "target"), ((-1, 0), "source")]
)
def test_wrong_links(link, side):
    with pytest.raises(ValueError, match=f"has a {side} word that is not there"):
        Markup("<b>a</b> b").carried("A B C", [link])


def random_text(random, depth=3):
    """Well-formed XML inside, with numbered elements, and its words."""
    pieces = []
    for _ in range(random.integers(1, 5)):
        kind = random.integers(0, 6 if depth else 4)
        number = random.integers(10**6)
        if kind < 2:
            pieces.append(random.choice(["old", "house.", '"so"', "a&amp;b", "(x", "&lt;"]))
        elif kind < 4:
            pieces.append(f"<x{number}/>" if kind == 2 else f"{{p{number}}}")
        else:
            pieces.append(f"<g{number}>{random_text(random, depth - 1)}</g{number}>")
    return random.choice(["", " "]).join(pieces)


def parents(xml):
    """The names of all elements, each with those that it is in."""
    root = ElementTree.fromstring(f"<root>{xml}</root>")
    found, waiting = {}, [(root, ())]
    while waiting:
        element, above = waiting.pop()
        found[element.tag] = above
        waiting += [(child, (*above, element.tag)) for child in element]
    return found, "".join(root.itertext())


def test_random_alignments():
    random = np.random.default_rng(7)
    for _ in range(300):
        text = random_text(random)
        markup = Markup(text)
        sizes = len(markup.plain.split()), int(random.integers(0, 9))
        words = random.choice(["Haus,", "„alt“", "<i>", "&", "zu", "!"], sizes[1])
        translation = " ".join(words)
        number = random.integers(0, 12) if all(sizes) else 0
        links = [tuple(int(random.integers(size)) for size in sizes) for _ in range(number)]
        carried = markup.carried(translation, links)
        if not re.search("<|&", text):
            assert re.sub(r"\{p\d+\}|\s", "", carried) == translation.replace(" ", "")
            continue
        # Well-formed, each element once and inside the same ones; the words as they were.
        found, written = parents(carried)
        assert found == parents(text)[0]
        assert placeholders_of(carried) == placeholders_of(text)
        words_again = re.sub(r"\{p\d+\}", " ", written).split()
        assert "".join(words_again) == translation.replace(" ", "")
        spaces = re.sub(r"<[^>]*>|\{p\d+\}", " ", carried).split()
        assert len(spaces) >= len(words)  # no two words were joined


@pytest.mark.parametrize(
    "text",
    [
        "<b>" * 3000 + "x y" + "</b>" * 3000,
        "<b>x</b> " * 3000,
        "<b>" * 3000 + "x",
        "x" + "</b>" * 3000,
        "{0}" * 3000 + "x",
        "<a" * 3000 + '"' * 3001,
        "<!--" * 3000,
        "<!--<b>-" * 3000,
        "{{ " * 3000 + "%(" * 3000,
        "<a " + "b='" * 3000,
        "<a " + "'<a \"' \"" * 3000,
    ],
)
def test_hostile_texts(text):
    markup = Markup(text)
    size = len(markup.plain.split())
    links = [(i, size - 1 - i) for i in range(size)]
    carried = markup.carried(markup.plain, links)
    marks = re.compile(r"</?b>|\{0\}")
    assert Counter(marks.findall(carried)) == Counter(marks.findall(text))


def test_symbols_stay_text_beside_tags():
    markup = Markup("Use <sep> <b>now</b>", symbols=("<sep>",))
    assert markup.plain == "Use <sep> now"
    carried = markup.carried("Nutze <sep> jetzt < bald", [(0, 0), (1, 1), (2, 2)])
    assert carried == "Nutze <sep> <b>jetzt</b> &lt; bald"


@pytest.mark.parametrize("wrong", [3, None, b"a", ["a"]])
def test_what_is_no_text_and_no_link_is_refused(wrong):
    markup = Markup("a <b>c</b>")
    for call in (
        lambda: Markup(wrong),
        lambda: Markup("a", protects=wrong),
        lambda: Markup("a", symbols="<2de>"),
        lambda: placeholders_of(wrong),
        lambda: markup.carried(wrong, []),
        lambda: markup.carried("a", [wrong]),
        lambda: markup.carried("a", 3),
        lambda: markup.carried("a", [(0, "1")]),
    ):
        with pytest.raises(ValueError, match="must be"):
            call()
