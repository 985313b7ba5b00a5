#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package: fit has the bits of the program, callbacks do what they say, errors are
exceptions, and a fit that is killed goes on from its backup.

    check_python.py ECHELON LIBRARY
"""
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LIBRARY = (os.path.abspath(path) for path in sys.argv[1:3])
PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
os.environ["ECHELON_LIBRARY"] = LIBRARY
sys.path.insert(0, str(PACKAGE))
import echelon  # noqa: E402 (the library must be named first)

RUN = """
model: {architecture: gpt2, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4}
training: {steps: 6, global_batch_size: 8, validate_every: 2, validate_samples: 8}
optimizer: {learning_rate: 1e-2}
data: {train: FOLDER/text, valid: FOLDER/text, sequence_length: 16}
log: {directory: FOLDER/run, tensorboard: false}
"""
GRIDS = [echelon.OneDevice(), echelon.Mirrored(2), echelon.Grid(pipeline=2, tensor=2),
         echelon.Zero(4, stage=3), echelon.LocalSGD(2, every=2)]


class Case(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        (self.folder / "corpus.txt").write_text("the quick brown fox jumps over a lazy dog. " * 60)
        subprocess.run([PROGRAM, "data", self.folder / "corpus.txt", self.folder / "text"],
                       check=True, capture_output=True)
        self.text = RUN.replace("FOLDER", str(self.folder))

    def tearDown(self):
        self.scratch.cleanup()

    def run_of(self, name, strategy=None, **keys):
        return echelon.Run(text=self.text, strategy=strategy,
                           **{"log.directory": self.folder / name, **keys})

    def program(self, name, strategy):
        """The losses of the same run by the program, and the bytes of its weights."""
        run_file = self.folder / "run.yaml"
        run_file.write_text(self.text)
        words = [f"parallel.{key}={value}" for key, value in strategy.keys.items()]
        subprocess.run([PROGRAM, "train", run_file, f"log.directory={self.folder / name}",
                        "parallel.comm=local", *words], check=True, capture_output=True)
        return self.losses(name), self.weights(name)

    def losses(self, name):
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        return [line["loss"] for line in map(json.loads, lines) if "grad_norm" in line]

    def weights(self, name):
        found = sorted((self.folder / name / "checkpoints").glob("step-*/model/*.safetensors"))
        self.assertTrue(found)
        return found[-1].read_bytes()


class Bits(Case):
    def test_grids(self):
        for number, strategy in enumerate(GRIDS):
            losses, weights = self.program(f"program{number}", strategy)
            run = self.run_of(f"package{number}", strategy)
            looked = []

            def look(step, logs, run=run, looked=looked):
                if step % 2 == 0:
                    looked.append(sum(len(bytes(value)) for value in
                                      run.training.weights.values()))

            class Reader(echelon.Callback):
                def on_train_batch_end(self, step, logs):
                    run.training = self.training
                    look(step, logs)

            history = run.fit([Reader()])
            self.assertEqual(history.step, [1, 2, 3, 4, 5, 6])
            self.assertEqual(self.losses(f"package{number}"), losses, strategy)
            self.assertEqual(self.weights(f"package{number}"), weights, strategy)
            self.assertEqual(len(looked), 3)
            self.assertEqual(len(history.history["valid_loss"]), 3)


class Callbacks(Case):
    def test_early_stopping(self):
        stopping = echelon.EarlyStopping("valid_loss", min_delta=100, patience=1)
        history = self.run_of("stopped", echelon.Mirrored(2)).fit([stopping])
        self.assertEqual(history.step[-1], 4)
        self.assertEqual(stopping.stopped_step, 4)
        again = self.run_of("stopped", echelon.Mirrored(2)).fit()  # from the checkpoint of the stop
        self.assertEqual(again.step, [5, 6])

    def test_learning_rate(self):
        schedule = echelon.LearningRateScheduler(lambda step, rate: 0.5 ** (step + 1))
        history = self.run_of("rates").fit([schedule])
        self.assertEqual(history.history["learning_rate"], [0.5 ** i for i in range(1, 7)])

    def test_csv_and_lambda(self):
        seen = []
        path = self.folder / "log.csv"
        self.run_of("csv").fit([echelon.CSVLogger(path),
                                echelon.LambdaCallback(on_test_end=lambda s, logs: seen.append(s))])
        lines = path.read_text().splitlines()
        self.assertEqual(len(lines), 7)
        self.assertEqual(lines[0].split(",")[:2], ["step", "loss"])
        self.assertEqual(seen, [2, 4, 6])
        with self.assertRaises(TypeError):
            echelon.LambdaCallback(on_epoch=print)

    def test_a_callback_that_raises(self):
        def fail(step, logs):
            raise KeyError("mine")
        run = self.run_of("raises", echelon.Mirrored(2), **{"checkpoint.every": 2})
        with self.assertRaisesRegex(KeyError, "mine"):
            run.fit([echelon.LambdaCallback(on_save=fail)])
        self.assertEqual(self.run_of("raises", echelon.Mirrored(2)).fit().step, [3, 4, 5, 6])

    def test_interrupts(self):
        """Ctrl-C keeps the backup, from which the next fit goes on; success removes only what is
        its own, and keeps the last checkpoint where the run's belong."""
        def interrupt(step, logs):
            if step == 3:
                raise KeyboardInterrupt
        backup = self.folder / "backup"
        backup.mkdir()
        (backup / "mine").write_text("x")
        first = self.run_of("interrupted").fit([
            echelon.BackupAndRestore(backup, save_freq=2),
            echelon.LambdaCallback(on_train_batch_end=interrupt)])
        self.assertEqual(first.step, [1, 2, 3])
        self.assertTrue((backup / "step-00000003").exists())
        second = self.run_of("interrupted").fit([echelon.BackupAndRestore(backup, save_freq=2)])
        self.assertEqual(second.step, [4, 5, 6])
        self.assertEqual([path.name for path in backup.iterdir()], ["mine"])
        self.assertTrue((self.folder / "interrupted/checkpoints/step-00000006").exists())

    def test_replicas_that_differ(self):
        def stop(step, logs):
            callback.training.stop_training = True
        callback = echelon.LambdaCallback(on_train_batch_end=stop)
        history = self.run_of("apart", echelon.LocalSGD(2, every=2)).fit([callback])
        self.assertEqual(history.step, [1, 2])  # saved after the average

    @unittest.skipUnless(shutil.which("mpirun"), "needs mpirun")
    def test_one_process_raises(self):
        (self.folder / "text.yaml").write_text(self.text)
        script = self.folder / "fit.py"
        script.write_text(f"""
import os, sys
sys.path.insert(0, {str(PACKAGE)!r})
import echelon
def fail(step, logs):
    if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
        raise KeyError("mine")
run = echelon.Run(text=open({str(self.folder / 'text.yaml')!r}).read(), **{{"parallel.data": 2}})
run.fit([echelon.LambdaCallback(on_train_batch_end=fail)])
""")
        mpi = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        done = subprocess.run(["mpirun", "-n", "2", "--oversubscribe", sys.executable, script],
                              env=os.environ | mpi, capture_output=True, text=True, check=False,
                              timeout=120)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("KeyError: 'mine'", done.stderr)

    def test_backup_survives_kills(self):
        """Killed after each step, and started again: the weights of the undisturbed run."""
        undisturbed = self.run_of("undisturbed")
        undisturbed.fit()
        script = self.folder / "fit.py"
        script.write_text(f"""
import os, signal, sys
sys.path.insert(0, {str(PACKAGE)!r})
import echelon
run = echelon.Run(text=open({str(self.folder / 'text.yaml')!r}).read(),
                  **{{"log.directory": {str(self.folder / 'killed')!r}}})
class Killer(echelon.Callback):
    def on_train_batch_end(self, step, logs):
        if step < 6:
            self.training.save()
            os.kill(os.getpid(), signal.SIGKILL)
run.fit([echelon.BackupAndRestore({str(self.folder / 'backup')!r}, save_freq=1), Killer()])
""")
        (self.folder / "text.yaml").write_text(self.text)
        for attempt in range(6):
            done = subprocess.run([sys.executable, script], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, -signal.SIGKILL if attempt < 5 else 0, done.stderr)
            self.assertEqual((self.folder / "backup").exists(), attempt < 5)
        self.assertEqual(self.losses("killed"), self.losses("undisturbed"))
        self.assertEqual(self.weights("killed"), self.weights("undisturbed"))


class Errors(Case):
    def test_exceptions(self):
        with self.assertRaisesRegex(echelon.UsageError, "training.steps"):
            self.run_of("e", **{"training.stepz": 3})
        with self.assertRaisesRegex(ValueError, "whole number|integer|not a"):
            self.run_of("e", **{"training.steps": "x"})
        with self.assertRaisesRegex(echelon.UsageError, "cannot open"):
            echelon.Run("none.yaml")
        with self.assertRaisesRegex(echelon.UsageError, "data.train|no such file"):
            self.run_of("e", **{"data.train": "nowhere"}).fit()
        with self.run_of("e").train() as training:
            for _ in range(6):
                training.step()
            with self.assertRaisesRegex(echelon.UsageError, "was the last"):
                training.step()
        with self.assertRaisesRegex(echelon.UsageError, "has ended"):
            training.step()

    def test_one_fails_beside_another(self):
        with self.run_of("good").train() as good, self.run_of(
                "bad", **{"training.on_nonfinite": "stop"}).train() as bad:
            name = next(iter(bad.weights))
            bad.weights[name] = b"\xff" * len(bytes(bad.weights[name]))
            with self.assertRaises(echelon.NumericError):
                bad.step()
            with self.assertRaises(echelon.NumericError):
                bad.finish()
            while not good.done:
                self.assertTrue(math.isfinite(good.step()["loss"]))


class Trained(Case):
    def test_verify(self):
        run = self.run_of("verified", echelon.Grid(pipeline=2, tensor=2))
        result = run.verify(steps=1, own_precision=True)
        self.assertTrue(result.passed)
        self.assertIn("PASSED", str(result))
        self.assertEqual([c["precision"] for c in result.comparisons], ["fp64", "fp32"])
        self.assertEqual(result.comparisons[0]["ranks"], 4)
        self.assertGreater(result.comparisons[0]["worst"], 0)
        self.assertTrue(math.isnan(result.comparisons[0]["reports"]))
        failed = run.verify(tolerance=1e-30)
        self.assertFalse(failed.passed)
        self.assertTrue(failed.comparisons[0]["first_bad"])
        with self.assertRaisesRegex(echelon.UsageError, "tolerance"):
            run.verify(tolerance=-1)

    def test_evaluate_and_sample(self):
        run = self.run_of("trained", echelon.Mirrored(2), **{"checkpoint.every": 3})
        run.fit()
        found = run.evaluate()
        said = subprocess.run([PROGRAM, "eval", self.folder / "trained", "--data",
                               self.folder / "text"], check=True, capture_output=True, text=True)
        self.assertIn(f"loss {found['loss']:.6f}  perplexity {found['perplexity']:.6f}  "
                      f"bits per byte {found['bits_per_byte']:.6f}  tokens {found['targets']}",
                      said.stdout)
        few = run.evaluate(self.folder / "text", samples=3, batch=2)
        self.assertEqual(few["samples"], 3)
        with self.assertRaisesRegex(echelon.Error, "nowhere"):
            run.evaluate("nowhere")
        text = run.sample("the quick", tokens=20)
        said = subprocess.run([PROGRAM, "sample", self.folder / "trained", "the quick", "-n", "20"],
                              check=True, capture_output=True)
        self.assertEqual(text, said.stdout.decode(errors="replace"))
        taken = []
        ids = run.sample(ids=[116, 104], tokens=5, on_token=lambda i, part: taken.append((i, part)))
        self.assertEqual(ids, [i for i, _ in taken])
        self.assertEqual(taken[0], (116, b"t"))
        stopped = run.sample(ids=[116], on_token=lambda i, part: False)
        self.assertEqual(stopped, [116])
        with self.assertRaisesRegex(ZeroDivisionError, "zero"):
            run.sample("the", on_token=lambda i, part: 1 / 0)
        with self.assertRaisesRegex(echelon.UsageError, "top-p"):
            run.sample("the", top_p=3)

    def test_checkpoints(self):
        run = self.run_of("listed", **{"checkpoint.every": 3})
        run.fit()
        found = run.checkpoints()
        self.assertEqual([one["step"] for one in found], [6, 3])
        self.assertTrue(all(one["complete"] and not one["problem"] for one in found))
        self.assertEqual(found, echelon.checkpoints(self.folder / "listed"))
        (pathlib.Path(found[0]["path"]) / "manifest.json").write_text("{")
        self.assertFalse(run.checkpoints()[0]["complete"])
        with self.assertRaisesRegex(echelon.UsageError, "none"):
            echelon.checkpoints("none")
        again = self.run_of("again", **{"checkpoint.resume": found[1]["path"]})
        with again.train() as training:
            self.assertEqual(training.step_count, 3)


class Plans(Case):
    def test_plan(self):
        plan = self.run_of("p", echelon.Grid(data=2, tensor=2)).plan()
        self.assertEqual(plan.ranks, 4)
        self.assertIn("memory", str(plan))
        self.assertGreater(plan.bytes(3)["parameters"], 1000)
        self.assertIn("model", plan.json())
        self.assertTrue(plan.svg.startswith("<svg") or "<svg" in plan.svg)
        self.assertIn("<pre>", plan._repr_html_())
        with self.assertRaises(IndexError):
            plan.bytes(4)

    def test_keys(self):
        keys = echelon.keys()
        self.assertEqual(keys["optimizer.clip_norm"]["fallback"], "1")
        self.assertEqual(self.run_of("k")["training.steps"], "6")
        lines = []
        echelon.set_log(lines.append)
        with self.assertRaises(echelon.UsageError):
            self.run_of("k", **{"training.stepz": 3})
        echelon.set_log(None)
        self.assertTrue(any("training.steps" in line for line in lines))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
