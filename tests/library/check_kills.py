#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Python job of several processes, of which one is killed at every second step: the same script,
started again, goes on from its backup, and its final weights are those of an undisturbed job. With
ECHELON_KILLS=epochs jobs of one process and of two are killed at every epoch of twenty.

    check_kills.py ECHELON LIBRARY MPIRUN UCX [CASE.TEST ...]
                                      MPIRUN: a path, or OFF; UCX: ON or OFF
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LIBRARY = (os.path.abspath(path) for path in sys.argv[1:3])
MPIRUN, UCX = sys.argv[3:5]
AT_EPOCHS = os.environ.get("ECHELON_KILLS") == "epochs"
ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS, EPOCHS = 6, 20
PARTS = EPOCHS if AT_EPOCHS else 3  # of a training, after each of which one is killed
LENGTH = f"epochs: {EPOCHS}" if AT_EPOCHS else f"steps: {STEPS}"
FIT = f"""
import json, os, pathlib, signal, sys
sys.path.insert(0, {str(ROOT / "python")!r})
import echelon
name, victim, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
task = json.loads(os.environ.get("TF_CONFIG", "{{}}")).get("task", {{}})
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK") or
           task.get("index", 0))
run = echelon.Run(text=pathlib.Path("run.yaml").read_text(), strategy=echelon.Zero(ranks, stage=2),
                  **{{"log.directory": name}})
os.write(1, f"comm {{run['parallel.comm']}}\\n".encode())  # one write, since two processes share it

class Killer(echelon.Callback):
    def on_train_batch_end(self, step, logs):
        last = self.training.last_step
        part = step * {PARTS} // last
        if victim >= 0 and part > (step - 1) * {PARTS} // last and step < last:
            self.training.save()
            mark = pathlib.Path(f"killed-{{name}}-{{part}}")
            if rank == victim and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

run.fit([echelon.BackupAndRestore(f"backup-{{name}}", save_freq=1), Killer()])
"""
RUN = f"""
model: {{architecture: gpt2, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4}}
training: {{{LENGTH}, global_batch_size: 8}}
optimizer: {{learning_rate: 1e-2}}
parallel: {{threads: 1, deadline: 20}}
data: {{train: text, sequence_length: 16}}
log: {{tensorboard: false}}
"""
# Two workers, as a TFJob starts them; fails if one fails.
TFJOB = """
status=0
for index in 0 1; do
    cluster="{\\"worker\\": [\\"localhost:$PORT\\", \\"other:1\\"]}"
    task="{\\"type\\": \\"worker\\", \\"index\\": $index}"
    TF_CONFIG="{\\"cluster\\": $cluster, \\"task\\": $task}" "$@" &
    started+=($!)
done
for process in "${started[@]}"; do wait "$process" || status=$?; done
exit $status
"""


class Kills(unittest.TestCase):
    def check(self, comm, launcher, settings, victims=(0, 1), ranks=2):
        with tempfile.TemporaryDirectory() as scratch:
            self.folder = pathlib.Path(scratch)
            self.start, self.ranks = [*launcher, sys.executable, "fit.py"], str(ranks)
            self.environment = {**os.environ, "ECHELON_LIBRARY": LIBRARY, "OMP_NUM_THREADS": "1",
                                **settings}
            (self.folder / "fit.py").write_text(FIT)
            (self.folder / "run.yaml").write_text(RUN)
            (self.folder / "corpus.txt").write_text(
                "the quick brown fox jumps over a dog. " * (8 if AT_EPOCHS else 60))
            subprocess.run([PROGRAM, "data", "corpus.txt", "text"], cwd=scratch, check=True,
                           capture_output=True)
            done = self.fit("undisturbed", -1)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count(f"comm {comm}"), ranks if launcher else 1)
            self.steps = len(self.losses("undisturbed"))
            self.assertGreaterEqual(self.steps, 2 * PARTS)
            for victim in victims:
                name = f"victim-{victim}"
                for part in range(1, PARTS):
                    done = self.fit(name, victim)
                    self.assertNotEqual(done.returncode, 0, f"part {part}: {done.stderr}")
                    self.assertTrue((self.folder / f"killed-{name}-{part}").exists(), done.stderr)
                    self.assertTrue((self.folder / f"backup-{name}").is_dir())
                done = self.fit(name, victim)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertFalse((self.folder / f"backup-{name}").exists())
                self.assertEqual(self.weights(name), self.weights("undisturbed"))
                self.assertEqual(self.losses(name), self.losses("undisturbed"))

    def fit(self, name, victim):
        return subprocess.run([*self.start, name, str(victim), self.ranks], cwd=self.folder,
                              text=True, capture_output=True, env=self.environment, timeout=240)

    def weights(self, name):
        states = sorted((self.folder / name / "checkpoints").glob("step-*/state"))
        self.assertEqual([state.parent.name for state in states], [f"step-{self.steps:08}"])
        files = [path for path in sorted(states[0].rglob("*")) if path.is_file()]
        self.assertTrue(files)
        return {path.name: path.read_bytes() for path in files}

    def losses(self, name):
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        values = {line["step"]: line["loss"] for line in map(json.loads, lines) if "loss" in line}
        self.assertEqual(list(values), list(range(1, len(values) + 1)))
        return values

    @unittest.skipUnless(AT_EPOCHS, "check_python.py kills one process after each step")
    def test_one_process(self):
        self.check("local", [], {}, victims=(0,))

    @unittest.skipIf(MPIRUN == "OFF", "no Open MPI")
    def test_mpi(self):
        self.check("mpi", [MPIRUN, "-n", "2", "--bind-to", "none"],
                   {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "OMPI_MCA_rmaps_base_oversubscribe": "1",
                    "OMPI_MCA_mpi_yield_when_idle": "1"})

    @unittest.skipIf(UCX == "OFF", "this build is without UCX")
    def test_ucx(self):
        self.check("ucx", [PROGRAM, "launch", "2"], {})

    @unittest.skipIf(UCX == "OFF", "this build is without UCX")
    def test_tf_config(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.check("ucx", ["bash", "-c", TFJOB, "tfjob"], {"PORT": str(port)}, victims=(1,))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
