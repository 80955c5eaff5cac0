from __future__ import annotations

import random

import pytest

from legato.bench.results import MeasuredRequest
from legato.bench.statistics import (
    FEWEST_FOR_INTERVAL,
    RoleSummary,
    ServiceTarget,
    by_role,
    gaps_around_document,
    median_of,
    people,
    percentile,
    prompt_rate,
    ratio_of_medians,
    role_group,
)

from . import sample


def test_percentile_is_a_value_that_occurred() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, percent) for percent in (0, 20, 21, 50, 95, 100)] == [1, 1, 2, 3, 5, 5]


def test_median_of_an_even_count_is_between_the_middle_ones() -> None:
    assert median_of([4.0, None, 1.0, 3.0]) == 3
    assert median_of([4.0, 1.0, 3.0, 2.0]) == 2.5


def test_no_values_have_no_middle() -> None:
    assert percentile([], 50) is None
    assert median_of([None]) is None


def test_ratio_of_the_same_distribution_shows_no_difference() -> None:
    noise = random.Random(0)
    first, second = ([noise.lognormvariate(0, 0.2) for _ in range(40)] for _ in range(2))
    interval = ratio_of_medians(first, second)
    assert not interval.shows_difference
    assert interval.bounds is not None
    assert interval.bounds[0] < interval.ratio < interval.bounds[1]


def test_ratio_of_distant_distributions_shows_the_difference() -> None:
    noise = random.Random(0)
    first = [noise.lognormvariate(0, 0.1) for _ in range(20)]
    interval = ratio_of_medians(first, [2 * value for value in first])
    assert interval.ratio == pytest.approx(2)
    assert interval.shows_difference


def test_interval_is_the_same_for_the_same_seed() -> None:
    first, second = [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 4.0, 5.0, 9.0]
    assert ratio_of_medians(first, second, seed=3) == ratio_of_medians(first, second, seed=3)


def test_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    noise = random.Random(5)
    covered = 0
    for seed in range(150):
        first, second = ([noise.lognormvariate(0, 0.3) for _ in range(15)] for _ in range(2))
        covered += not ratio_of_medians(first, second, seed=seed, draws=400).shows_difference
    assert covered >= 0.9 * 150


def test_few_values_have_no_interval() -> None:
    few = [1.0] * (FEWEST_FOR_INTERVAL - 1)
    interval = ratio_of_medians(few, [9.0] * 50)
    assert (interval.ratio, interval.bounds) == (9, None)
    assert not interval.shows_difference


def test_many_values_are_resampled_in_blocks() -> None:
    assert not ratio_of_medians([1.0] * 30_000, [1.0] * 5, draws=50).shows_difference


def test_a_ratio_to_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="median of 0"):
        ratio_of_medians([0.0], [1.0])


def test_summary_takes_all_requests_of_a_role_together() -> None:
    one = RoleSummary(
        [
            sample.request(ttft=1.0, gaps=[0.1, 0.2], prompt=100, cached=50),
            sample.request(ttft=3.0, gaps=[0.1, 0.6], prompt=200, cached=None),
        ]
    )
    assert (one.count, one.errors, one.not_streamed) == (2, 0, 0)
    assert (one.ttft_s(50), one.ttft_s(95), one.ttft_s(100)) == (1.0, 3.0, 3.0)
    assert one.gap_s(50) == pytest.approx(0.1)
    assert one.gap_s(100) == pytest.approx(0.6)
    assert one.prompt_rate == pytest.approx((50 / 1 + 200 / 3) / 2)
    assert one.output_rate == pytest.approx((2 / 0.3 + 2 / 0.7) / 2)


def test_summary_counts_errors_and_leaves_their_times_out() -> None:
    one = RoleSummary([sample.request(ttft=1.0), sample.request(ttft=99.0, gaps=[50.0], error="It hung.")])
    assert (one.count, one.errors, one.ttft_s(100), one.gap_s(100)) == (2, 1, 1.0, None)


def test_summary_of_failures_alone_has_no_times() -> None:
    one = RoleSummary([sample.failed(), sample.failed()])
    assert (one.count, one.errors, one.ttft_s(50), one.output_rate, one.total_s) == (2, 2, None, None, None)


def test_answer_in_one_piece_has_neither_gaps_nor_a_prefill_rate() -> None:
    one = RoleSummary([sample.in_one_piece()])
    assert (one.not_streamed, one.gap_s(50), one.prompt_rate, one.output_rate) == (1, None, None, None)


def test_merged_tokens_show_as_tokens_per_event() -> None:
    assert RoleSummary([sample.request(gaps=[0.1] * 9, tokens=30)]).tokens_per_event == 3


def test_whole_time_leaves_out_what_the_bench_ended_itself() -> None:
    ended = sample.request()
    ended.hung_up = True
    assert RoleSummary([ended]).total_s is None


def test_summaries_take_numbered_roles_together() -> None:
    found = by_role(sample.crowd(people=5).runs[0].requests)
    assert {role: RoleSummary(requests).count for role, requests in found.items()} == {"person": 5}


def test_role_group_takes_only_a_number_at_the_end_away() -> None:
    roles = ("person 3", "in turns", "128 tokens in, 64 out", "7", "chat")
    assert [role_group(role) for role in roles] == ["person", "in turns", "128 tokens in, 64 out", "7", "chat"]


@pytest.mark.parametrize("prompt", [None, 0])
def test_prefill_rate_is_unknown_without_a_count(prompt) -> None:
    assert prompt_rate(sample.request(prompt=prompt)) is None


def test_prefill_rate_is_never_negative() -> None:
    assert prompt_rate(sample.request(prompt=10, cached=11)) == 0


def test_goodput_counts_only_requests_that_met_both_targets() -> None:
    requests = [
        sample.request(sent=0, ttft=0.5, gaps=[0.1]),
        sample.request(sent=1, ttft=2.5, gaps=[0.1]),
        sample.request(sent=2, ttft=0.5, gaps=[0.1, 0.9]),
        sample.request(sent=3, ttft=0.5, gaps=[0.1], error="It was cut off."),
        sample.failed(sent=9.8),
    ]
    assert ServiceTarget(1.0, 0.2).goodput(requests) == pytest.approx(1 / 10)
    assert ServiceTarget(5.0, 0.2).goodput(requests) == pytest.approx(2 / 10)
    assert ServiceTarget(5.0, 1.0).goodput(requests) == pytest.approx(3 / 10)


def test_goodput_of_nothing_is_nothing() -> None:
    assert ServiceTarget(1.0, 1.0).goodput([]) == 0
    refused = MeasuredRequest(role="a", sent_s=0.0, wanted_tokens=1, error="Refused.")
    assert ServiceTarget(1.0, 1.0).goodput([refused]) == 0


def test_an_answer_without_text_meets_no_target() -> None:
    assert not ServiceTarget(1.0, 1.0).met_by(MeasuredRequest(role="a", sent_s=0.0, wanted_tokens=1, ended_s=0.1))


def test_targets_do_not_hold_for_background_jobs() -> None:
    assert [one.role for one in people([sample.request("job 1"), sample.request("person 1")])] == ["person 1"]


def test_share_within_counts_the_target_itself() -> None:
    service = ServiceTarget(gap_s=0.2)
    assert service.percent_within([0.1, 0.2, 0.3, 0.4]) == 50
    assert service.percent_within([]) is None


def test_targets_come_from_the_options_where_they_are_usable() -> None:
    assert ServiceTarget.of({"ttft_target_s": 3, "gap_target_s": 0.1}) == ServiceTarget(3.0, 0.1)
    assert ServiceTarget.of({"ttft_target_s": "soon", "gap_target_s": -1}) == ServiceTarget()


def test_gaps_are_sorted_around_the_reading_of_the_document() -> None:
    chat = sample.request("chat", sent=10.0, ttft=1.0, gaps=[1.0, 1.0, 5.0, 1.0, 1.0])
    document = sample.request("document", sent=13.5, ttft=3.5)
    around = gaps_around_document([chat, document])
    # Text at 11, 12, 13, 18, 19, 20 s; the document is read from 13.5 to 17 s, within the long gap.
    assert around == {"before": [1.0, 1.0], "during": [5.0], "after": [1.0, 1.0]}


def test_a_document_that_failed_counts_as_read_until_its_end() -> None:
    chat = sample.request("chat", ttft=1.0, gaps=[1.0] * 4)
    document = MeasuredRequest(role="document", sent_s=2.5, wanted_tokens=1, ended_s=1.0, error="It was refused.")
    around = gaps_around_document([chat, document])
    assert {when: len(gaps) for when, gaps in around.items()} == {"before": 1, "during": 2, "after": 1}


def test_each_round_has_its_own_document() -> None:
    around = gaps_around_document(sample.interference(rounds=2).runs[1].requests)
    assert sorted(around["during"]) == [12.0, 13.0]


def test_a_round_without_a_document_disturbs_nobody() -> None:
    assert not any(gaps_around_document([sample.request("chat", gaps=[1.0])]).values())
