"""What a client changed since the prompt that is remembered."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.tokens import Tokens
from legato.server.prompt_changes import LEAST_LOST, RUN, Change, RecentPrompts, find_change


class Words:
    """A vocabulary like real ones: words with the space before them, single digits and signs, control tokens."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.ids: dict[str, int] = {}

    def tokens(self, text: str) -> Tokens:
        words = re.findall(r"<\|\w+\|>| ?[A-Za-z]+|\d|\s|[^\w\s]|_", text)
        assert "".join(words) == text
        for word in words:
            if word not in self.ids:
                self.ids[word] = len(self.words)
                self.words.append(word)
        return np.array([self.ids[word] for word in words], np.int32)

    def text(self, tokens: Tokens) -> str:
        return "".join(self.words[token] for token in tokens)


WORDS = Words()


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


def alike(one: Tokens, other: Tokens) -> int:
    """Tokens that both begin with."""
    return next(
        (at for at, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its), min(len(one), len(other))
    )


def change(old: str, new: str, *, already: int = 0) -> Change | None:
    return find_change(WORDS.tokens(new), [WORDS.tokens(old)], WORDS.text, already=already)


def found(old: str, new: str) -> tuple[Change, str, str]:
    """The change, and the text that it says was in either prompt; what holds for every change is asserted."""
    before, after = WORDS.tokens(old), WORDS.tokens(new)
    diagnosis = find_change(after, [before], WORDS.text)
    assert diagnosis is not None
    assert diagnosis.at_token == alike(before, after) == diagnosis.old[0] == diagnosis.new[0]
    assert LEAST_LOST <= diagnosis.lost_tokens <= min(len(before), len(after)) - diagnosis.at_token
    return diagnosis, WORDS.text(before[slice(*diagnosis.old)]), WORDS.text(after[slice(*diagnosis.new)])


def tool(name: str, seed: int, words: int = 40) -> str:
    """A tool as clients list it: much of it is the same in every other."""
    path = {"type": "string", "description": f"The path,{prose(seed + 1000, 6)}"}
    return json.dumps(
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"It does{prose(seed, words)}.",
                "parameters": {
                    "type": "object",
                    "properties": {"path": path},
                    "required": ["path"],
                    "additionalProperties": False,
                },
            },
        }
    )


TOOLS = [
    tool(name, 100 + at, 10 + 17 * at % 50)
    for at, name in enumerate(["read", "write", "list", "find", "move", "delete"])
]


def with_tools(tools: Sequence[str], talk: Sequence[str]) -> str:
    return chat(f"You are helpful. Tools:\n{chr(10).join(tools)}\n{prose(9, 50)}", *talk)


# Numbers.


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
    diagnosis, was, now = found(chat(f"Now: {old}. {RULES}", *TALK), chat(f"Now: {new}. {RULES}", *talk))
    assert diagnosis.kind == "number"
    assert was.strip() in old
    assert now.strip() in new
    assert diagnosis.lost_tokens >= 200


def test_a_clock_costs_all_that_follows_it() -> None:
    before, after = (chat(f"Now: 10:0{minute}. {RULES}", *TALK) for minute in (3, 4))
    at = len(WORDS.tokens("<|im_start|>system\nNow: 10:0"))
    whole = len(WORDS.tokens(before))
    assert change(before, after) == Change("number", at, (at, at + 1), (at, at + 1), whole - at - 1)


def test_a_new_turn_after_a_clock_was_not_lost() -> None:
    before, after = chat(f"Now: 10:03. {RULES}", *TALK), chat(f"Now: 10:14. {RULES}", *GROWN)
    at = len(WORDS.tokens("<|im_start|>system\nNow: 10:"))
    # The old prompt's last tokens, the header of an answer, stand in the new one too.
    assert change(before, after) == Change("number", at, (at, at + 2), (at, at + 2), len(WORDS.tokens(before)) - at - 2)


def test_date_and_time_may_stand_apart() -> None:
    def prompt(date: str, time: str, talk: list[str]) -> str:
        return chat(f"The date is {date}.{prose(10, 30)}\nThe time is {time}.{prose(11, 60)}", *talk)

    diagnosis, was, now = found(prompt("May 1, 2024", "23:59", TALK), prompt("June 12, 2024", "0:07", GROWN))
    assert (diagnosis.kind, was, now) == ("number", " May 1", " June 12")


def test_a_number_in_every_message() -> None:
    old = [f"[{at} minutes ago]{said}" for at, said in enumerate(GROWN)]
    new = [f"[{at + 12} minutes ago]{said}" for at, said in enumerate(GROWN)]
    diagnosis, was, now = found(chat(RULES, *old), chat(RULES, *new))
    assert (diagnosis.kind, was, now) == ("number", "0", "12")


def test_a_clock_before_another_question_with_the_same_instructions_after_it() -> None:
    instructions = prose(12, 60)
    old = chat(f"Now: 10:03. {RULES}", f"{prose(13, 20)}\n{instructions}")
    new = chat(f"Now: 10:44. {RULES}", f"{prose(14, 22)}\n{instructions}")
    diagnosis, was, now = found(old, new)
    assert (diagnosis.kind, was, now) == ("number", "03", "44")
    at = diagnosis.at_token
    assert diagnosis.lost_tokens == len(WORDS.tokens(old)) - at - 2 - 20


def test_a_clock_and_a_name_are_no_number() -> None:
    old = chat(f"Now: 10:03. I am.{prose(15, 80)}\nLanguage: Dutch. {RULES}", *TALK)
    new = chat(f"Now: 10:04. I am.{prose(15, 80)}\nLanguage: Greek. {RULES}", *GROWN)
    assert found(old, new)[0].kind == "rewritten"


# Inserted and removed.


@pytest.mark.parametrize("talk", [TALK, GROWN], ids=["same", "grown"])
@pytest.mark.parametrize("words", [1, 5, 50, 70, 700])
def test_inserted_and_removed_text(talk: list[str], words: int) -> None:
    plain, longer = f"{prose(16, 30)}.{RULES}", f"{prose(16, 30)}{prose(17, words)}.{RULES}"
    diagnosis, was, now = found(chat(plain, *TALK), chat(longer, *talk))
    assert (diagnosis.kind, was, now) == ("inserted", "", prose(17, words))
    diagnosis, was, now = found(chat(longer, *TALK), chat(plain, *talk))
    assert (diagnosis.kind, was, now) == ("removed", prose(17, words), "")


def test_the_borders_of_tokens_beside_a_change_may_move() -> None:
    # "Be brief" without, "Be very brief" with: the vocabulary has "Be" as one token before " brief" alone.
    words = ["B", "e", "Be", " very", " brief", *(f" {word}" for word in prose(18, 100).split())]
    rest = list(range(4, len(words)))
    short, long = np.array([2, *rest], np.int32), np.array([0, 1, 3, *rest], np.int32)

    def text(tokens: Tokens) -> str:
        return "".join(words[token] for token in tokens)

    assert find_change(long, [short], text) == Change("inserted", 0, (0, 1), (0, 3), len(rest))
    assert find_change(short, [long], text) == Change("removed", 0, (0, 3), (0, 1), len(rest))


def test_the_oldest_turns_dropped() -> None:
    diagnosis, was, now = found(chat(RULES, *TALK), chat(RULES, *GROWN[2:]))
    assert diagnosis.kind == "removed"
    assert (len(WORDS.tokens(was)), now) == (40 + 120 + 10, "")


def test_the_reasoning_of_every_turn_dropped() -> None:
    thought = [f"<think>{prose(20 + at, 150)}</think>{said}" if at % 2 else said for at, said in enumerate(GROWN)]
    diagnosis, was, now = found(chat(RULES, *thought), chat(RULES, *GROWN, prose(19, 50), prose(29, 20)))
    assert (diagnosis.kind, was, now) == ("removed", f"<think>{prose(21, 150)}</think>", "")


@pytest.mark.parametrize("at", range(len(TOOLS)))
def test_a_tool_more_or_less(at: int) -> None:
    fewer = [*TOOLS[:at], *TOOLS[at + 1 :]]
    size = len(WORDS.tokens(TOOLS[at] + "\n"))
    diagnosis, was, now = found(with_tools(fewer, TALK), with_tools(TOOLS, GROWN))
    assert (diagnosis.kind, was, len(WORDS.tokens(now))) == ("inserted", "", size)
    diagnosis, was, now = found(with_tools(TOOLS, TALK), with_tools(fewer, GROWN))
    assert (diagnosis.kind, len(WORDS.tokens(was)), now) == ("removed", size, "")


# Replaced.


@pytest.mark.parametrize("talk", [TALK, GROWN], ids=["same", "grown"])
def test_a_word_replaced(talk: list[str]) -> None:
    diagnosis, was, now = found(chat(f"I am Anna. {RULES}", *TALK), chat(f"I am Mary Jane. {RULES}", *talk))
    assert (diagnosis.kind, was, now) == ("replaced", " Anna", " Mary Jane")


@pytest.mark.parametrize(("old", "new"), [(300, 300), (100, 90), (20, 400)])
def test_a_document_replaced(old: int, new: int) -> None:
    before, after = (f"{RULES}\nSource:{prose(30 + words, words)}" for words in (old, new + 1))
    diagnosis, was, now = found(chat(before, *TALK), chat(after, *GROWN))
    assert (diagnosis.kind, was, now) == ("replaced", prose(30 + old, old), prose(31 + new, new + 1))
    assert diagnosis.lost_tokens == len(WORDS.tokens(chat(before, *TALK))) - diagnosis.old[1]


@pytest.mark.parametrize("at", range(len(TOOLS)))
def test_a_tool_replaced_by_another(at: int) -> None:
    other = [*TOOLS[:at], tool("search", 120, 55), *TOOLS[at + 1 :]]
    diagnosis, was, now = found(with_tools(TOOLS, TALK), with_tools(other, GROWN))
    assert diagnosis.kind == "replaced"
    assert json.loads(TOOLS[at])["function"]["description"] in was
    assert json.loads(other[at])["function"]["description"] in now


def test_words_replaced_side_by_side_are_one_stretch() -> None:
    old = f"I am Anna.{prose(32, 12)}, I live in Rome.{prose(33, 12)}, I like tea. {RULES}"
    new = f"I am Paul.{prose(32, 12)}, I live in Oslo.{prose(33, 12)}, I like rye. {RULES}"
    diagnosis, was, now = found(chat(old, *TALK), chat(new, *GROWN))
    assert diagnosis.kind == "replaced"
    assert was.startswith(" Anna")
    assert now.endswith(" rye")


# Reordered.


@pytest.mark.parametrize("talk", [TALK, GROWN, [prose(51, 20)]], ids=["same", "grown", "other"])
@pytest.mark.parametrize("order", [(1, 0, 2, 3, 4, 5), (5, 0, 1, 2, 3, 4), (1, 2, 3, 4, 5, 0), (5, 4, 3, 2, 1, 0)])
def test_tools_in_another_order(talk: list[str], order: tuple[int, ...]) -> None:
    diagnosis, was, now = found(with_tools(TOOLS, TALK), with_tools([TOOLS[at] for at in order], talk))
    assert diagnosis.kind == "reordered"
    assert sorted(was) == sorted(now)


@pytest.mark.parametrize("seed", range(10))
def test_tools_in_any_order(seed: int) -> None:
    shuffled = random.Random(seed).sample(TOOLS, len(TOOLS))
    assert found(with_tools(TOOLS, TALK), with_tools(shuffled, GROWN))[0].kind == "reordered"


def test_tools_in_another_order_before_another_question_with_the_same_instructions() -> None:
    instructions = prose(58, 60)
    old = with_tools(TOOLS, [f"{prose(59, 300)}\n{instructions}"])
    new = with_tools(TOOLS[::-1], [f"{prose(90, 300)}\n{instructions}"])
    diagnosis, was, now = found(old, new)
    assert diagnosis.kind == "reordered"
    assert sorted(was) == sorted(now)


def test_short_names_in_another_order() -> None:
    names = prose(34, 20).split()
    backward = names[::-1]
    old, new = (chat(f"Tools: {', '.join(order)}. {RULES}", *TALK) for order in (names, backward))
    assert found(old, new)[0].kind == "reordered"


@pytest.mark.parametrize("end", ["", prose(35, 30)])
def test_documents_in_another_order_at_the_end(end: str) -> None:
    one, other, third = prose(36, 150), prose(37, 300), prose(38, 80)
    old, new = (chat("Answer.", f"{one}\n{other}\n{third}"), chat("Answer.", f"{third}\n{other}\n{one}\n{end}"))
    diagnosis, _, _ = found(old, new)
    assert diagnosis.kind == "reordered"
    assert diagnosis.lost_tokens >= 525


def test_a_document_moved_behind_the_new_turn() -> None:
    document = prose(39, 200)
    old, new = chat(f"{document}\n{RULES}", *TALK), chat(RULES, *GROWN, prose(40, 10), document)
    assert found(old, new)[0].kind == "reordered"


def test_a_document_in_the_place_of_one_that_moved_is_more_than_another_order() -> None:
    old, new = (f"{prose(seed, 150)}\n{RULES}" for seed in (91, 92))
    diagnosis, was, now = found(chat(old, *TALK), chat(new, *GROWN, prose(40, 10), prose(91, 150)))
    assert (diagnosis.kind, was, now) == ("replaced", prose(91, 150), prose(92, 150))


# Rewritten.


def test_a_history_summarised() -> None:
    history = [prose(seed, 100) for seed in range(60, 80)]
    old, new = chat(RULES, *history, *TALK), chat(RULES, f"So far:{prose(41, 150)}", prose(42, 3), *GROWN)
    diagnosis, was, _ = found(old, new)
    assert diagnosis.kind == "rewritten"
    assert len(WORDS.tokens(was)) >= 2000
    # All of the old turns that were kept, from the end of the turn before them.
    kept = len(WORDS.tokens("<|im_end|>\n<|im_start|>user\n" + "".join(TALK))) + 4 * 5 + 5
    assert diagnosis.lost_tokens == kept


def test_several_answers_written_anew() -> None:
    talk = [prose(seed, 90) for seed in range(80, 90)]
    anew = [prose(seed + 100, 60) if seed % 3 == 1 else said for seed, said in enumerate(talk)]
    diagnosis, was, now = found(chat(RULES, *talk), chat(RULES, *anew, prose(43, 10)))
    assert diagnosis.kind == "rewritten"
    assert (was.startswith(talk[1]), now.startswith(anew[1])) == (True, True)
    assert (was.endswith(talk[7]), now.endswith(anew[7])) == (True, True)


def test_more_differences_than_are_walked() -> None:
    old, new = ("".join(f"{prose(1000 + at, 70)} {word}" for at in range(300)) for word in ("tea", "rye"))
    diagnosis = change(old, new)
    assert diagnosis == Change("rewritten", 70, (70, 300 * 71), (70, 300 * 71), 299 * 70)


# Nothing to name.


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (chat(RULES, *TALK), chat(RULES, *TALK)),
        (chat(RULES, *TALK), chat(RULES, *GROWN)),
        (chat(RULES, *GROWN), chat(RULES, *TALK)),
        (chat(RULES, *TALK) + "<think>\n\n</think>", chat(RULES, *GROWN)),
        (chat(RULES, *TALK, "It is 10:03."), chat(RULES, *TALK, "It is 10:04.")),
        (chat(RULES, *TALK), chat(RULES, prose(44, 50))),
        (chat(RULES, *TALK), chat(prose(45, 200), prose(46, 300))),
        (chat("Now: 10:03.", prose(47, 20)), chat("Now: 10:04.", prose(47, 20))),
        ("", chat(RULES, *TALK)),
        (chat(RULES, *TALK), ""),
        ("Hi.", "Hello."),
    ],
    ids=[
        "the same",
        "continued",
        "shortened",
        "continued, thinking",
        "a clock at the end",
        "another talk with the same rules",
        "nothing in common",
        "little lost",
        "an empty one remembered",
        "an empty prompt",
        "very short ones",
    ],
)
def test_nothing_to_name(old: str, new: str) -> None:
    assert change(old, new) is None


def test_nothing_is_remembered() -> None:
    assert find_change(WORDS.tokens(RULES), [], WORDS.text) is None


def test_a_phrase_in_common_does_not_make_two_talks_one() -> None:
    long_rules, canned = prose(48, 3000), prose(49, 40)
    old = chat(long_rules, prose(52, 300), f"{prose(53, 100)}{canned}")
    new = chat(long_rules, prose(54, 300), f"{prose(55, 100)}{canned}")
    assert change(old, new) is None


@pytest.mark.parametrize(("shared", "one_talk"), [(140, False), (180, True)])
def test_one_conversation_shares_half_of_the_shorter_prompt(shared: int, one_talk: bool) -> None:
    old = prose(93, 320 - shared) + prose(94, shared)
    new = prose(95, 500 - shared) + prose(94, shared)
    assert (change(old, new) is not None) is one_talk


def test_what_the_cache_did_supply_was_not_lost() -> None:
    old, new = chat(f"Now: 10:03. {RULES}", *TALK), chat(f"Now: 10:04. {RULES}", *TALK)
    whole = change(old, new)
    assert whole is not None
    size, at = len(WORDS.tokens(new)), whole.at_token
    for already, lost in ((at, whole.lost_tokens), (at + 101, size - at - 101), (size - LEAST_LOST, LEAST_LOST)):
        diagnosis = change(old, new, already=already)
        assert diagnosis == Change("number", at, whole.old, whole.new, lost)
    assert change(old, new, already=size - LEAST_LOST + 1) is None


# Which remembered prompt.


def among(new: str, *remembered: str) -> Change | None:
    return find_change(WORDS.tokens(new), [WORDS.tokens(old) for old in remembered], WORDS.text)


def test_the_nearest_is_the_one_that_shares_most() -> None:
    others = [chat(prose(200 + seed, 400), prose(300 + seed, 40)) for seed in range(3)]
    earlier = [chat(f"Now: 10:0{turns}. {RULES}", *GROWN[:turns]) for turns in (1, 3, 5)]
    new = chat(f"Now: 10:09. {RULES}", *GROWN)
    for remembered in ([*others, *earlier], [*earlier[::-1], *others]):
        assert among(new, *remembered) == change(earlier[2], new)


def test_the_nearest_of_long_prompts() -> None:
    text = prose(96, 6000)
    earlier = [f"{minute}{text[: 6 * words]}" for minute, words in ((1, 4500), (2, 5500), (3, 5000))]
    assert among(f"4{text}", *earlier) == Change("number", 0, (0, 1), (0, 1), 5500)


def test_of_equally_near_ones_the_newest_is_taken() -> None:
    newest, older = (chat(f"Now: {time}. {RULES}", *TALK) for time in ("10:03", "8:15"))
    new = chat(f"Now: 9:41. {RULES}", *GROWN)
    assert among(new, newest, older) == change(newest, new)
    assert among(new, older, newest) == change(older, new)


def test_other_branches_of_a_talk_that_the_prompt_continues_are_no_change() -> None:
    branch = chat(RULES, TALK[0], prose(56, 300), *GROWN[2:])
    assert change(branch, chat(RULES, *GROWN)) is not None
    for end in ("", "<|think|>\n\n<|answer|>"):
        assert among(chat(RULES, *GROWN), branch, chat(RULES, *TALK) + end) is None


def test_a_greeting_under_the_same_rules_hides_no_change() -> None:
    greeting = chat(RULES, "Hi")
    old, new = chat(RULES, *GROWN), chat(RULES, prose(57, 45), *GROWN[1:])
    diagnosis = among(new, greeting, old)
    assert diagnosis is not None
    assert diagnosis == change(old, new)


# Any prompts.


def letters(tokens: Tokens) -> str:
    """Digits below 10, else a word without digits."""
    return "".join(
        str(token) if token < 10 else " " + "".join(chr(97 + int(digit)) for digit in str(token)) for token in tokens
    )


def distinct(start: int, count: int) -> list[int]:
    """So many tokens that stand nowhere else."""
    return list(range(start, start + count))


@given(head=st.integers(0, 50), tail=st.integers(150, 300), growth=st.integers(0, 400), size=st.integers(1, 300))
def test_one_change_is_found_exactly(head: int, tail: int, growth: int, size: int) -> None:
    before, after, more = distinct(1000, head), distinct(2000, tail), distinct(3000, growth)
    x, y = distinct(4000, size), distinct(5000, size)

    def diagnose(old: list[int], new: list[int]) -> Change | None:
        both = [np.array([*before, *middle, *after], np.int32) for middle in (old, new)]
        grown = np.concatenate((both[1], np.array(more, np.int32)))
        return find_change(grown, both[:1], letters)

    def expected(kind: str, old: int, new: int) -> tuple[str, int, tuple[int, int], tuple[int, int], int]:
        return kind, head, (head, head + old), (head, head + new), tail

    # A long stretch beside a short rest leaves too little in common to be the same conversation.
    for kind, old, new in (("inserted", [], x), ("removed", x, []), ("replaced", x, y)):
        diagnosis = diagnose(old, new)
        if size <= head + tail - 3 * RUN:
            assert diagnosis == Change(*expected(kind, len(old), len(new)))  # type: ignore[arg-type]
    assert diagnose([1, 2], [3]) == Change(*expected("number", 2, 1))  # type: ignore[arg-type]
    if size >= RUN:
        swapped = diagnose(x + y, y + x)
        assert swapped is not None
        assert (swapped.kind, swapped.at_token) == ("reordered", head)
        assert (swapped.old, swapped.lost_tokens) == ((head, head + 2 * size), tail + 2 * size)


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
    diagnosis = find_change(after, [before], letters, already=already)
    if diagnosis is None:
        return
    at = alike(before, after)
    assert diagnosis.at_token == at == diagnosis.old[0] == diagnosis.new[0]
    assert at <= diagnosis.old[1] <= len(old)
    assert at <= diagnosis.new[1] <= len(new)
    assert LEAST_LOST <= diagnosis.lost_tokens <= min(len(old) - at, len(new) - max(at, already))
    runs = {tuple(old[start : start + RUN]) for start in range(at, len(old) - RUN + 1)}
    known = {
        token
        for start in range(at, len(new) - RUN + 1)
        if tuple(new[start : start + RUN]) in runs
        for token in range(start, start + RUN)
    }
    lost = sum(token >= already for token in known)
    assert diagnosis.lost_tokens == min(lost, len(old) - at)


# The memory of recent prompts.


def ids(*tokens: int) -> Tokens:
    return np.array(tokens, np.int32)


def lists(prompts: Sequence[Tokens]) -> list[list[int]]:
    return [prompt.tolist() for prompt in prompts]


def test_the_newest_prompt_comes_first_and_scopes_are_apart() -> None:
    recent = RecentPrompts(100)
    recent.remember("a", ids(1, 2))
    recent.remember(None, ids(3))
    recent.remember("a", ids(4))
    assert lists(recent.of("a")) == [[4], [1, 2]]
    assert lists(recent.of(None)) == [[3]]
    assert recent.of("b") == []


def test_a_prompt_that_another_continues_is_replaced() -> None:
    recent = RecentPrompts(100)
    for prompt in (ids(1, 2), ids(5), ids(1, 2, 3), ids(1, 2, 3), ids(1, 4)):
        recent.remember("a", prompt)
    recent.remember("b", ids(5, 6))
    assert lists(recent.of("a")) == [[1, 4], [1, 2, 3], [5]]
    assert recent.tokens == 8


def test_the_oldest_of_all_scopes_make_room() -> None:
    recent = RecentPrompts(6)
    recent.remember("a", ids(1, 2, 3))
    recent.remember("b", ids(4, 5))
    recent.remember("b", ids(6, 7))
    assert (recent.of("a"), lists(recent.of("b")), recent.tokens) == ([], [[6, 7], [4, 5]], 4)


def test_a_prompt_that_is_too_long_drives_out_nothing() -> None:
    recent = RecentPrompts(3)
    recent.remember(None, ids(1, 2, 3))
    recent.remember(None, ids(1, 2, 3, 4))
    recent.remember(None, ids())
    assert lists(recent.of(None)) == [[1, 2, 3]]


def test_what_is_remembered_does_not_change_with_the_array() -> None:
    recent, prompt = RecentPrompts(3), ids(1, 2, 3)
    recent.remember(None, prompt)
    prompt[0] = 9
    assert lists(recent.of(None)) == [[1, 2, 3]]


@given(
    most=st.integers(0, 12),
    prompts=st.lists(st.tuples(st.sampled_from(["a", None]), st.lists(st.integers(0, 1), max_size=6)), max_size=30),
)
def test_it_keeps_the_newest_that_fit(most: int, prompts: list[tuple[str | None, list[int]]]) -> None:
    recent = RecentPrompts(most)
    kept: list[tuple[str | None, list[int]]] = []
    for scope, prompt in prompts:
        recent.remember(scope, ids(*prompt))
        if 0 < len(prompt) <= most:
            kept = [(whose, old) for whose, old in kept if whose != scope or prompt[: len(old)] != old]
            kept.append((scope, prompt))
            while sum(len(old) for _, old in kept) > most:
                kept.pop(0)
        for whose in ("a", None):
            assert lists(recent.of(whose)) == [old for owner, old in kept[::-1] if owner == whose]
        assert recent.tokens == sum(len(old) for _, old in kept) <= most
