"""What a client changed since the prompt that is remembered."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.timings import Reread
from legato.core.tokens import Tokens, common_prefix
from legato.server.prompt_changes import LEAST_LOST, RUN, find_change

IDS: dict[str, int] = {}
"""A vocabulary like real ones: words with the space before them, single digits and signs, control tokens."""
WORDS: list[str] = []


def tokens_of(text: str) -> Tokens:
    words = re.findall(r"<\|\w+\|>| ?[A-Za-z]+|\d|\s|[^\w\s]|_", text)
    assert "".join(words) == text
    for word in words:
        if word not in IDS:
            IDS[word] = len(WORDS)
            WORDS.append(word)
    return np.array([IDS[word] for word in words], np.int32)


def text_of(tokens: Tokens) -> str:
    return "".join(WORDS[token] for token in tokens)


def size(text: str) -> int:
    return len(tokens_of(text))


def prose(seed: int, words: int) -> str:
    """So many words, each one token; no other seed gives the same eight in a row."""
    rng = random.Random(seed)
    return "".join(" " + "".join(rng.choices("bdfklmnprstvz", k=5)) for _ in range(words))


def chat(system: str, *talk: str) -> str:
    """A prompt in ChatML: the system prompt, then what user and assistant said in turn."""
    told = "".join(
        f"<|im_start|>{'assistant' if turn % 2 else 'user'}\n{said}<|im_end|>\n" for turn, said in enumerate(talk)
    )
    return f"<|im_start|>system\n{system}<|im_end|>\n{told}<|im_start|>assistant\n"


TALK = [prose(1, 40), prose(2, 120), prose(3, 30), prose(4, 90), prose(5, 25)]
GROWN = [*TALK, prose(6, 110), prose(7, 35)]
RULES = "You are helpful." + prose(8, 200)


def among(new: str, *remembered: str, already: int = 0) -> Reread | None:
    return find_change(tokens_of(new), [tokens_of(old) for old in remembered], text_of, already=already)


def found(old: str, new: str) -> tuple[str, str, str, int]:
    """Kind, words before, words now and lost tokens; what holds for every change is asserted."""
    before, after = tokens_of(old), tokens_of(new)
    change = find_change(after, [before], text_of)
    assert change is not None
    assert change.was is not None
    assert change.now is not None
    at = change.at_token
    assert at == common_prefix(before, after)
    for tokens, words in ((before, change.was), (after, change.now)):
        assert text_of(tokens[at:]).startswith(words)
    assert LEAST_LOST <= change.lost_tokens <= min(len(before), len(after)) - at
    return change.kind, change.was, change.now, change.lost_tokens


def tool(name: str, seed: int, words: int = 40) -> str:
    """A tool as clients list it: much of it is the same in every other."""
    path = {"type": "string", "description": f"The path,{prose(seed + 1000, 6)}"}
    parameters = {"type": "object", "properties": {"path": path}, "required": ["path"], "additionalProperties": False}
    function = {"name": name, "description": f"It does{prose(seed, words)}.", "parameters": parameters}
    return json.dumps({"type": "function", "function": function})


NAMES = ["read", "write", "list", "find", "move", "delete"]
TOOLS = [tool(name, 100 + at, 10 + 17 * at % 50) for at, name in enumerate(NAMES)]


def with_tools(tools: Sequence[str], talk: Sequence[str]) -> str:
    return chat(f"You are helpful. Tools:\n{chr(10).join(tools)}\n{prose(9, 50)}", *talk)


# Numbers


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("10:03", "10:04"),
        ("9:59", "10:00"),
        ("2024-05-01T10:03:22.120331+00:00", "2024-05-02T09:41:07.5+00:00"),
        ("Monday, 30 September 2024 at 9:05 AM", "Tuesday, 1 October 2024 at 12:10 PM"),
        ("Fri, Mar 1st", "Sat, Mar 2nd"),
        ("1714557802", "1714557950"),
        ("request 99 of 1,000", "request 100 of 1,000"),
        ("Monday", "Thursday"),
    ],
)
@pytest.mark.parametrize("talk", [TALK, GROWN, GROWN[:1], [prose(50, 20)]], ids=["same", "grown", "cut", "other"])
def test_a_clock_or_counter_in_the_first_line(old: str, new: str, talk: list[str]) -> None:
    kind, was, now, lost = found(chat(f"Now: {old}. {RULES}", *TALK), chat(f"Now: {new}. {RULES}", *talk))
    assert kind == "number"
    assert was.strip() in old
    assert now.strip() in new
    assert lost >= 200


def test_numbers_that_stand_apart() -> None:
    def dated(date: str, time: str, talk: list[str]) -> str:
        return chat(f"The date is {date}.{prose(10, 30)}\nThe time is {time}.{prose(11, 60)}", *talk)

    changed = found(dated("May 1, 2024", "23:59", TALK), dated("June 12, 2024", "0:07", GROWN))
    assert changed[:3] == ("number", " May 1", " June 12")
    old, new = ([f"[{at + ago} minutes ago]{said}" for at, said in enumerate(GROWN)] for ago in (0, 12))
    assert found(chat(RULES, *old), chat(RULES, *new))[:3] == ("number", "0", "12")


def test_a_clock_before_another_question_with_the_same_instructions_after_it() -> None:
    old, new = (
        chat(f"Now: 10:{minute}. {RULES}", f"{prose(seed, 20)}\n{prose(12, 60)}")
        for minute, seed in (("03", 13), ("44", 14))
    )
    expected = size(old) - size("<|im_start|>system\nNow: 10:03") - 20
    assert found(old, new) == ("number", "03", "44", expected)


def test_a_clock_and_a_name_are_no_number() -> None:
    old = chat(f"Now: 10:03. I am.{prose(15, 80)}\nLanguage: Dutch. {RULES}", *TALK)
    new = chat(f"Now: 10:04. I am.{prose(15, 80)}\nLanguage: Greek. {RULES}", *GROWN)
    assert found(old, new)[0] == "rewritten"


# Inserted, removed, replaced


ROWS = [
    ("number", "Now: 10:", "03", "14"),
    ("replaced", "I am", " Anna", " Mary Jane"),
    *(
        ("replaced", f"{RULES}\nSource:", prose(30, old), prose(31, new))
        for old, new in ((300, 301), (100, 91), (20, 401))
    ),
    *(("inserted", prose(16, 30), "", prose(17, words)) for words in (1, 5, 50, 70, 700)),
    *(("removed", prose(16, 30), prose(17, words), "") for words in (1, 5, 50, 70, 700)),
]


@pytest.mark.parametrize("talk", [TALK, GROWN], ids=["same", "grown"])
@pytest.mark.parametrize(("kind", "head", "was", "now"), ROWS)
def test_one_stretch_of_the_system_prompt_costs_all_that_follows_it_but_new_turns(
    kind: str, head: str, was: str, now: str, talk: list[str]
) -> None:
    old, new = chat(f"{head}{was}. {RULES}", *TALK), chat(f"{head}{now}. {RULES}", *talk)
    # The old prompt's last tokens, the header of an answer, stand in the new one too.
    lost = size(old) - size(f"<|im_start|>system\n{head}{was}")
    assert found(old, new) == (kind, was, now, lost)


def test_the_borders_of_tokens_beside_a_change_may_move() -> None:
    # "Be brief" without, "Be very brief" with: the vocabulary has "Be" as one token before " brief" alone.
    words = ["B", "e", "Be", " very", " brief", *(f" {word}" for word in prose(18, 100).split())]
    rest = list(range(4, len(words)))
    short, long = np.array([2, *rest], np.int32), np.array([0, 1, 3, *rest], np.int32)

    def text(tokens: Tokens) -> str:
        return "".join(words[token] for token in tokens)

    assert find_change(long, [short], text) == Reread("inserted", 0, len(rest), 0.0, "Be", "Be very")
    assert find_change(short, [long], text) == Reread("removed", 0, len(rest), 0.0, "Be very", "Be")


def test_turns_or_their_reasoning_dropped() -> None:
    kind, was, now, _ = found(chat(RULES, *TALK), chat(RULES, *GROWN[2:]))
    assert (kind, size(was), now) == ("removed", 40 + 120 + 10, "")
    thought = [f"<think>{prose(20 + at, 150)}</think>{said}" if at % 2 else said for at, said in enumerate(GROWN)]
    changed = found(chat(RULES, *thought), chat(RULES, *GROWN, prose(19, 50), prose(29, 20)))
    assert changed[:3] == ("removed", f"<think>{prose(21, 150)}</think>", "")


@pytest.mark.parametrize("at", range(len(TOOLS)))
def test_a_tool_more_or_less_or_another(at: int) -> None:
    fewer = [*TOOLS[:at], *TOOLS[at + 1 :]]
    kind, was, now, _ = found(with_tools(fewer, TALK), with_tools(TOOLS, GROWN))
    assert (kind, was, size(now)) == ("inserted", "", size(TOOLS[at] + "\n"))
    kind, was, now, _ = found(with_tools(TOOLS, TALK), with_tools(fewer, GROWN))
    assert (kind, size(was), now) == ("removed", size(TOOLS[at] + "\n"), "")
    other = [*TOOLS[:at], tool("search", 120, 55), *TOOLS[at + 1 :]]
    kind, was, now, _ = found(with_tools(TOOLS, TALK), with_tools(other, GROWN))
    assert kind == "replaced"
    assert json.loads(TOOLS[at])["function"]["description"] in was
    assert json.loads(other[at])["function"]["description"] in now


def test_words_replaced_side_by_side_are_one_stretch() -> None:
    old, new = (
        f"I am {name}.{prose(32, 12)}, I live in {town}.{prose(33, 12)}, I like {drink}. {RULES}"
        for name, town, drink in (("Anna", "Rome", "tea"), ("Paul", "Oslo", "rye"))
    )
    kind, was, now, _ = found(chat(old, *TALK), chat(new, *GROWN))
    assert (kind, was[:5], now[-4:]) == ("replaced", " Anna", " rye")


# Reordered, rewritten


@pytest.mark.parametrize("talk", [TALK, GROWN, [prose(51, 20)]], ids=["same", "grown", "other"])
@pytest.mark.parametrize(
    "order", [[1, 0, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], *(random.Random(seed).sample(range(6), 6) for seed in range(8))]
)
def test_tools_in_another_order(talk: list[str], order: list[int]) -> None:
    moved = [TOOLS[at] for at in order]
    # Also before another question with the same instructions.
    questions = ([f"{prose(seed, 300)}\n{prose(58, 60)}"] for seed in (59, 90))
    for before, after in ((TALK, talk), questions):
        kind, was, now, _ = found(with_tools(TOOLS, before), with_tools(moved, after))
        assert kind == "reordered"
        assert sorted(was) == sorted(now)


def test_short_names_and_documents_in_another_order() -> None:
    names = prose(34, 20).split()
    old, new = (chat(f"Tools: {', '.join(order)}. {RULES}", *TALK) for order in (names, names[::-1]))
    assert found(old, new)[0] == "reordered"
    one, other, third = prose(36, 150), prose(37, 300), prose(38, 80)
    for end in ("", prose(35, 30)):
        old, new = chat("Answer.", f"{one}\n{other}\n{third}"), chat("Answer.", f"{third}\n{other}\n{one}\n{end}")
        kind, _, _, lost = found(old, new)
        assert (kind, lost >= 525) == ("reordered", True)


def test_a_document_that_moved_behind_the_new_turn() -> None:
    document, other = prose(91, 150), prose(92, 150)
    old = chat(f"{document}\n{RULES}", *TALK)
    assert found(old, chat(RULES, *GROWN, prose(40, 10), document))[0] == "reordered"
    # One in its place is more than another order.
    changed = found(old, chat(f"{other}\n{RULES}", *GROWN, prose(40, 10), document))
    assert changed[:3] == ("replaced", document, other)


def test_a_history_summarised() -> None:
    history = [prose(seed, 100) for seed in range(60, 80)]
    new = chat(RULES, f"So far:{prose(41, 150)}", prose(42, 3), *GROWN)
    kind, was, _, lost = found(chat(RULES, *history, *TALK), new)
    assert (kind, size(was) >= 2000) == ("rewritten", True)
    # All of the old turns that were kept, from the end of the turn before them.
    assert lost == size("<|im_end|>\n<|im_start|>user\n" + "".join(TALK)) + 4 * 5 + 5


def test_several_answers_written_anew() -> None:
    talk = [prose(seed, 90) for seed in range(80, 90)]
    anew = [prose(seed + 100, 60) if seed % 3 == 1 else said for seed, said in enumerate(talk)]
    kind, was, now, _ = found(chat(RULES, *talk), chat(RULES, *anew, prose(43, 10)))
    assert kind == "rewritten"
    assert (was.startswith(talk[1]), now.startswith(anew[1])) == (True, True)
    assert (was.endswith(talk[7]), now.endswith(anew[7])) == (True, True)


@pytest.mark.parametrize(("stretch", "kind"), [(70, "rewritten"), (20, "replaced")])
def test_many_differences_take_no_longer(stretch: int, kind: str) -> None:
    old, new = (
        tokens_of("".join(f"{prose(at, stretch)} {word}" for at in range(16_000 // stretch))) for word in ("a", "b")
    )
    begun_s = time.process_time()
    change = find_change(new, [old], text_of)
    # Some tens of milliseconds; the rest is for slow machines.
    assert time.process_time() - begun_s < 1
    assert change is not None
    assert (change.kind, change.at_token) == (kind, stretch)
    assert change.lost_tokens == (16_000 // stretch - 1) * stretch


# Nothing to name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(chat(RULES, *TALK), chat(RULES, *TALK), id="the same"),
        pytest.param(chat(RULES, *TALK), chat(RULES, *GROWN), id="continued"),
        pytest.param(chat(RULES, *GROWN), chat(RULES, *TALK), id="shortened"),
        pytest.param(chat(RULES, *TALK) + "<think>\n\n</think>", chat(RULES, *GROWN), id="continued, thinking"),
        pytest.param(chat(RULES, "It is 10:03."), chat(RULES, "It is 10:04."), id="a clock at the end"),
        pytest.param(chat(RULES, *TALK), chat(RULES, prose(44, 50)), id="another talk with the same rules"),
        pytest.param(chat(RULES, *TALK), chat(prose(45, 200), prose(46, 300)), id="nothing in common"),
        pytest.param(chat("Now: 10:03.", prose(47, 20)), chat("Now: 10:04.", prose(47, 20)), id="little lost"),
        pytest.param("", chat(RULES, *TALK), id="an empty one remembered"),
        pytest.param(chat(RULES, *TALK), "", id="an empty prompt"),
        pytest.param("Hi.", "Hello.", id="very short ones"),
        pytest.param(
            chat(prose(48, 3000), prose(52, 300), prose(53, 100) + prose(49, 40)),
            chat(prose(48, 3000), prose(54, 300), prose(55, 100) + prose(49, 40)),
            id="long rules and a phrase in common",
        ),
    ],
)
def test_nothing_to_name(old: str, new: str) -> None:
    assert among(new, old) is None
    assert among(new) is None


@pytest.mark.parametrize(("shared", "one_talk"), [(140, False), (180, True)])
def test_one_conversation_shares_half_of_the_shorter_prompt(shared: int, one_talk: bool) -> None:
    old, new = (prose(seed, words - shared) + prose(94, shared) for seed, words in ((93, 320), (95, 500)))
    assert (among(new, old) is not None) is one_talk


def test_what_the_cache_did_supply_was_not_lost() -> None:
    old, new = chat(f"Now: 10:03. {RULES}", *TALK), chat(f"Now: 10:04. {RULES}", *TALK)
    at, end = size("<|im_start|>system\nNow: 10:0"), size(new)
    for already, lost in ((at, end - at - 1), (at + 101, end - at - 101), (end - LEAST_LOST, LEAST_LOST)):
        assert among(new, old, already=already) == Reread("number", at, lost, 0.0, "3", "4")
    assert among(new, old, already=end - LEAST_LOST + 1) is None


# Which remembered prompt


def test_the_nearest_is_the_one_that_shares_most_and_of_equals_the_newest() -> None:
    others = [chat(prose(200 + seed, 400), prose(300 + seed, 40)) for seed in range(3)]
    earlier = [chat(f"Now: 10:0{turns}. {RULES}", *GROWN[:turns]) for turns in (1, 3, 5)]
    equal = chat(f"Now: 10:08. {RULES}", *GROWN[:5])
    new = chat(f"Now: 10:09. {RULES}", *GROWN)
    for remembered in ([*others, *earlier, equal], [*earlier[::-1], equal, *others]):
        assert among(new, *remembered) == among(new, earlier[2]) != among(new, equal)
    text = prose(96, 6000)
    long = [f"{minute}{text[: 6 * words]}" for minute, words in ((1, 4500), (2, 5500), (3, 5000))]
    assert among(f"4{text}", *long) == Reread("number", 0, 5500, 0.0, "2", "4")


def test_other_branches_of_a_talk_that_the_prompt_continues_are_no_change() -> None:
    branch = chat(RULES, TALK[0], prose(56, 300), *GROWN[2:])
    assert among(chat(RULES, *GROWN), branch) is not None
    for end in ("", "<|think|>\n\n<|answer|>"):
        assert among(chat(RULES, *GROWN), branch, chat(RULES, *TALK) + end) is None
    # A greeting under the same rules hides nothing.
    old, new = chat(RULES, *GROWN), chat(RULES, prose(57, 45), *GROWN[1:])
    assert among(new, chat(RULES, "Hi"), old) == among(new, old) != None  # noqa: E711 - of three


# Any prompts


def letters(tokens: Tokens) -> str:
    """Digits below 10, else a word without digits."""
    return "".join(
        str(token) if token < 10 else " " + "".join(chr(97 + int(digit)) for digit in str(token)) for token in tokens
    )


@given(head=st.integers(0, 50), tail=st.integers(150, 300), growth=st.integers(0, 400), many=st.integers(1, 300))
def test_one_change_is_found_exactly(head: int, tail: int, growth: int, many: int) -> None:
    # Tokens that stand nowhere else.
    before, after, more, x, y = (
        list(range(first, first + count))
        for first, count in ((1000, head), (2000, tail), (3000, growth), (4000, many), (5000, many))
    )

    def diagnose(old: list[int], new: list[int]) -> Reread | None:
        prompts = [*before, *old, *after], [*before, *new, *after, *more]
        earlier, prompt = (np.array(prompt, np.int32) for prompt in prompts)
        return find_change(prompt, [earlier], letters)

    def expected(kind: str, old: list[int], new: list[int], lost: int = tail) -> Reread:
        return Reread(kind, head, lost, 0.0, letters(np.array(old)), letters(np.array(new)))

    # A long stretch beside a short rest leaves too little in common to be the same conversation.
    if many <= head + tail - 3 * RUN:
        for kind, old, new in (("inserted", [], x), ("removed", x, []), ("replaced", x, y)):
            assert diagnose(old, new) == expected(kind, old, new)
    assert diagnose([1, 2], [3]) == expected("number", [1, 2], [3])
    if many >= RUN:
        assert diagnose(x + y, y + x) == expected("reordered", x + y, y + x, tail + 2 * many)


@given(
    old=st.lists(st.integers(0, 3) | st.integers(1000, 1002), max_size=150),
    edits=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 40), st.lists(st.integers(0, 3), max_size=20))),
    already=st.integers(0, 200),
)
def test_what_holds_for_any_change(old: list[int], edits: list[tuple[int, int, list[int]]], already: int) -> None:
    new = list(old)
    for at, gone, came in edits:
        new[at : at + gone] = came
    before, after = np.array(old, np.int32), np.array(new, np.int32)
    change = find_change(after, [before], letters, already=already)
    if change is None:
        return
    at = common_prefix(before, after)
    assert change.at_token == at
    assert letters(before[at:]).startswith(change.was or "")
    assert letters(after[at:]).startswith(change.now or "")
    runs = {tuple(old[start : start + RUN]) for start in range(at, len(old) - RUN + 1)}
    known = {
        token
        for start in range(at, len(new) - RUN + 1)
        if tuple(new[start : start + RUN]) in runs
        for token in range(start, start + RUN)
    }
    lost = sum(token >= already for token in known)
    assert LEAST_LOST <= change.lost_tokens == min(lost, len(old) - at)
