"""Workloads are reproducible, share what they say, and come when they should."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from ramet.bench.job import Job, Message, Pace, Workload, is_chat
from ramet.bench.workloads import LOADS, Load, ordinary_ids
from ramet.bench.workloads.natural_text import PROMPTS, Chat, read_prompts
from ramet.bench.workloads.random_tokens import Agents, SharedPrefix, Tree
from ramet.bench.workloads.trace_file import MOONCAKE_BLOCK, TraceFile
from ramet.lang.base.errors import UsageError

IDS = range(100, 200)


def loads(tmp_path: Path) -> list[Load]:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        json.dumps({"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [1]})
    )
    return [each(file=trace) if each is TraceFile else each() for each in LOADS]


def test_the_same_options_and_seed_give_the_same_jobs(tmp_path: Path) -> None:
    for load in loads(tmp_path):
        assert load.build("s", IDS) == load.build("s", IDS)
        if not is_chat(load.build("s", IDS).jobs[0].prompt):
            assert load.build("s", IDS).jobs != load.build("t", IDS).jobs


def test_random_tokens_are_of_the_vocabulary(tmp_path: Path) -> None:
    for load in loads(tmp_path):
        for job in load.build("s", IDS).jobs:
            if not is_chat(job.prompt):
                assert set(job.prompt) <= set(IDS)


@pytest.mark.parametrize("vocab_size", [16, 300, 32_000, 200_000])
def test_ordinary_ids_exist_in_the_vocabulary(vocab_size: int) -> None:
    ids = ordinary_ids(vocab_size)
    assert 0 < ids.start < ids.stop <= min(vocab_size, 32_000)


def test_jobs_continue_earlier_ones(tmp_path: Path) -> None:
    for load in loads(tmp_path):
        for index, job in enumerate(load.build("s", IDS).jobs):
            assert job.after is None or 0 <= job.after < index


def test_common_prefixes_and_outputs_count_once() -> None:
    jobs = (Job((1, 2, 3, 4), 1), Job((1, 2, 3, 5), 1), Job((1, 2), 1), Job((9,), 1))
    assert Workload("w", jobs, Pace()).least_prompt_tokens() == 4 + 1 + 0 + 1
    branches = (*jobs, Job((7, 8), 1, after=0), Job((7, 9), 1, after=0))
    assert Workload("w", branches, Pace()).least_prompt_tokens() == 6 + (1 + 2 + 1)


def test_a_tree_branches_at_each_level() -> None:
    jobs = Tree(trees=2, branches=3, depth=2).build("s", IDS).jobs
    parents = [job.after for job in jobs]
    assert parents == [None, None, *[0] * 3, *[1] * 3, *(p for p in range(2, 8) for _ in "abc")]


def test_tools_delay_the_next_turn() -> None:
    jobs = Agents(agents=2, turns=2, tool_s=0.25).build("s", IDS).jobs
    assert [job.delay_s for job in jobs] == [0, 0, 0.25, 0.25]


def test_bursts_arrive_together() -> None:
    load = SharedPrefix(per_group=9, rate=10, burst=3)
    times = list(load.build("s", IDS).arrivals())
    assert times[0] == times[1] == times[2] < times[3] == times[4] == times[5] < times[6]


def test_a_chat_begins_with_a_prompt_of_the_file() -> None:
    own = read_prompts(PROMPTS)
    assert len(own) == 64
    first, *_, last = Chat(requests=3, turns=2).build("s", IDS).jobs
    assert first.prompt[1:] == own[0]
    assert last.after == 2
    assert not first.has_exact_length


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Why is the sky blue?", (Message("user", "Why is the sky blue?"),)),
        ('{"prompt": "Why?"}', (Message("user", "Why?"),)),
        ('{"messages": [{"role": "system", "content": "Be brief."}]}',
         (Message("system", "Be brief."),)),
    ],
)  # fmt: skip
def test_prompts_are_texts_or_messages(tmp_path: Path, line: str, expected: object) -> None:
    (tmp_path / "own").write_text(line + "\n\n")
    assert list(read_prompts(tmp_path / "own")) == [expected]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "no prompts"),
        ('{"prompt": 3}', "line 1: neither"),
        ('{"prompt": "a"', "line 1: not valid JSON"),
        ('{"messages": [{"role": "user"}]}', "line 1: a message without"),
    ],
)
def test_a_wrong_line_of_prompts_is_named(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "wrong"
    path.write_text(line)
    with pytest.raises(UsageError, match=problem):
        read_prompts(path)


def trace_jobs(tmp_path: Path, text: str, **options: object) -> list[Job]:
    path = tmp_path / "trace"
    path.write_text(text)
    return list(TraceFile(file=path, **options).build("s", IDS).jobs)  # type: ignore[arg-type]


def test_mooncake_blocks_are_shared_by_their_ids(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 500, "input_length": 600, "output_length": 7, "hash_ids": [4, 5]},
        {"timestamp": 2500, "input_length": 700, "output_length": 8, "hash_ids": [4, 6]},
    ]
    first, second = trace_jobs(tmp_path, "\n".join(map(json.dumps, rows)))
    assert (len(first.prompt), len(second.prompt)) == (600, 700)
    assert first.prompt[:MOONCAKE_BLOCK] == second.prompt[:MOONCAKE_BLOCK]
    assert first.prompt[MOONCAKE_BLOCK] != second.prompt[MOONCAKE_BLOCK]
    assert (first.at_s, second.at_s, second.num_output_tokens) == (0.0, 2.0, 8)


def test_sharegpt_turns_follow_each_other(tmp_path: Path) -> None:
    turns = [{"from": who, "value": text} for who, text in
             [("human", "a"), ("gpt", "b"), ("human", "c"), ("gpt", "d")]]  # fmt: skip
    text = json.dumps([{"conversations": turns}, {"conversations": turns[2:]}])
    jobs = trace_jobs(tmp_path, text)
    assert [(job.prompt[0].content, job.after) for job in jobs] == [
        ("a", None), ("c", 0), ("c", None)]  # fmt: skip


def test_recorded_times_give_way_to_a_rate(tmp_path: Path) -> None:
    text = '{"at_s": 0, "prompt": "a"}\n{"at_s": 9, "prompt": "b", "max_tokens": 3}'
    recorded = TraceFile(file=tmp_path / "trace", speed=3.0)
    jobs = trace_jobs(tmp_path, text, rate=1.0)
    assert [job.at_s for job in jobs] == [None, None]
    assert list(islice(recorded.build("s", IDS).arrivals(), 2)) == [0.0, 3.0]
    assert jobs[1].num_output_tokens == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no requests"),
        ("{", "line 1: not valid JSON"),
        ("3", "line 1: not an object"),
        ('{"prompt": "a"}\n{"at_s": "x", "prompt": "a"}', "line 2: at_s is not a time"),
        ('{"hash_ids": [], "output_length": 1}', "input_length is not a positive"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens is not a positive"),
        ("[3]", r"\[0\]: no list 'conversations'"),
        ('[{"conversations": [3]}]', r"\[0\]: a turn without"),
    ],
)
def test_a_wrong_trace_is_refused_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        trace_jobs(tmp_path, text)
