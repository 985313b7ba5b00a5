#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trained model in EleutherAI's lm-evaluation-harness, on tasks of local files: multiple choice,
perplexity and generation give what `echelon eval` and echelon.sample say. Skips (77) without
lm_eval.

    check_harness.py ECHELON LIBRARY
"""
import json
import os
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
try:
    import lm_eval
    from lm_eval.tasks import TaskManager
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import math
import re
import subprocess
import unittest

from check_python import Case, PROGRAM, echelon
from echelon.harness import EchelonLM

ITEMS = [{"question": "What is quick?", "choices": ["the fox", "a dog that is lazy", "é"],
          "answer": 0},
         {"question": "Who jumps?", "choices": ["a lazy dog", "the fox over it"], "answer": 1},
         {"question": "Over what?", "choices": ["over a dog", "éé", "the"], "answer": 2},
         {"question": "Why?", "choices": ["x", "because the quick brown fox jumps"], "answer": 1}]
CHOICE = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
"""
CHOICES = CHOICE + """
output_type: multiple_choice
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_bytes, aggregation: mean, higher_is_better: true}}
"""
ROLLING = CHOICE + """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{question}}}} {{{{choices[1]}}}}"
metric_list:
  - {{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}}
"""
UNTIL = CHOICE + """
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "x"
generation_kwargs: {{until: [" "], max_gen_toks: 12, do_sample: false}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
"""


class Harness(Case):
    def setUp(self):
        super().setUp()
        self.items = self.folder / "items.jsonl"
        self.items.write_text("".join(json.dumps(one) + "\n" for one in ITEMS))
        self.tasks = self.folder / "tasks"
        self.tasks.mkdir()
        for name, text in (("choices", CHOICES), ("rolling", ROLLING), ("until", UNTIL)):
            (self.tasks / f"{name}.yaml").write_text(text.format(
                name=f"tiny_{name}", data=json.dumps(str(self.items))))

    def results(self, model, task):
        os.environ["HF_HOME"] = str(self.folder / "cache")
        found = lm_eval.simple_evaluate(
            model=model, tasks=[task], bootstrap_iters=0, log_samples=True,
            task_manager=TaskManager(include_path=str(self.tasks), include_defaults=False))
        return found["results"][task], found["samples"][task]

    def test_tasks(self):
        run = self.run_of("harnessed", **{"data.sequence_length": 64, "training.steps": 20})
        run.fit()
        path = self.folder / "harnessed"
        model = EchelonLM(path)

        found, samples = self.results(model, "tiny_choices")
        said = subprocess.run([PROGRAM, "eval", path, "--choices", self.items, "--begin-of-text",
                               "false", "--scores", self.folder / "scores"],
                              check=True, capture_output=True, text=True).stdout
        for name in ("acc", "acc_norm", "acc_bytes"):
            printed = re.search(rf"\b{name} ([0-9.]+) \(error ([0-9.]+)", said)
            self.assertAlmostEqual(found[f"{name},none"], float(printed[1]), 6)
        lines = [json.loads(line) for line in (self.folder / "scores").read_text().splitlines()]
        for line, sample in zip(lines, sorted(samples, key=lambda one: one["doc_id"])):
            theirs = [response[0] for response in sample["filtered_resps"]]
            for ours, value in zip(line["log_likelihoods"], theirs, strict=True):
                self.assertAlmostEqual(ours, float(value), 9)

        found, _ = self.results(model, "tiny_rolling")
        texts = [f"{one['question']} {one['choices'][1]}" for one in ITEMS]
        ours = echelon.score(path, [(None, text) for text in texts])
        bits = -sum(one.log_likelihood for one in ours) / sum(len(t.encode()) for t in texts)
        self.assertAlmostEqual(found["bits_per_byte,none"], bits / math.log(2), 9)

        _, samples = self.results(model, "tiny_until")
        for sample in samples:
            question = sample["doc"]["question"]
            text = echelon.sample(path, question, tokens=12, temperature=0, begin_of_text=False)
            self.assertEqual(sample["resps"][0][0], text[len(question):].split(" ")[0])

    def test_greedy_and_options(self):
        run = self.run_of("greedy", **{"data.sequence_length": 64})
        run.fit()
        path = self.folder / "greedy"
        written = echelon.sample(path, "the", tokens=4, temperature=0, begin_of_text=False)[3:]

        class Request:
            def __init__(self, *args):
                self.args = args
        found = EchelonLM(path).loglikelihood([Request("the", written), Request("the", "#")])
        self.assertEqual([greedy for _, greedy in found], [True, False])
        both = [EchelonLM(path, greedy=False, parallel=parallel).loglikelihood(
            [Request("the", " fox")])[0] for parallel in (None, "tensor=2")]
        self.assertAlmostEqual(both[0][0], both[1][0], 4)
        with self.assertRaisesRegex(echelon.UsageError, "num_beams"):
            EchelonLM(path).generate_until([Request("the", {"num_beams": 2})])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
