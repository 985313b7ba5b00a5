#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package: fit has the bits of the program, callbacks do what they say, errors are
exceptions, and a fit that is killed goes on from its backup.

    check_python.py ECHELON LIBRARY [CASE[.TEST] ...]
"""
import csv
import hashlib
import json
import math
import os
import pathlib
import pydoc
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
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

    def test_best_checkpoint(self):
        run = self.run_of("best")
        run["checkpoint.keep"], run["checkpoint.every"] = 1, 2
        history = run.fit([echelon.BestCheckpoint(2)])
        losses = dict(zip((2, 4, 6), history.history["valid_loss"]))
        best = set(sorted(losses, key=losses.get)[:2]) | {6}  # and the newest
        kept = sorted(p.name for p in (self.folder / "best" / "checkpoints").iterdir())
        self.assertEqual(kept, [f"step-{step:08d}" for step in sorted(best)])

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
        rows = list(csv.DictReader(lines))
        self.assertEqual([int(row["tokens"]) for row in rows], [128 * n for n in range(1, 7)])
        self.assertNotIn("samples", rows[0])
        self.assertEqual(seen, [2, 4, 6])
        with self.assertRaises(TypeError):
            echelon.LambdaCallback(on_epoch=print)

    def write_images(self):
        """16 images of 4 x 4 pixels, of two classes."""
        path = self.folder / "bars-images-idx3-ubyte"
        path.write_bytes(struct.pack(">4I", 0x803, 16, 4, 4) + bytes(range(256)))
        labels = self.folder / "bars-labels-idx1-ubyte"
        labels.write_bytes(struct.pack(">2I", 0x801, 16) + bytes([0, 1]) * 8)
        subprocess.run([PROGRAM, "data", path, self.folder / "bars", "--images"], check=True,
                       capture_output=True)

    def test_samples_of_images(self):
        self.write_images()
        run = echelon.Run(data=self.folder / "bars.images", **{
            "model.architecture": "mlp", "model.hidden_size": 4, "model.num_hidden_layers": 1,
            "model.image_height": 4, "model.image_width": 4, "model.image_channels": 1,
            "model.num_classes": 2, "training.steps": 3, "training.global_batch_size": 8,
            "training.micro_batch_size": 4, "optimizer.learning_rate": 1e-2,
            "log.directory": self.folder / "mlp"})
        path = self.folder / "log.csv"
        history = run.fit([echelon.CSVLogger(path)])
        self.assertEqual(history.history["samples"], [8, 16, 24])
        self.assertNotIn("tokens", history.history)
        rows = list(csv.DictReader(path.read_text().splitlines()))
        self.assertEqual([row["samples"] for row in rows], ["8", "16", "24"])
        self.assertNotIn("tokens", rows[0])

    def test_epochs_and_tensorboard(self):
        run = echelon.Run(text=self.text.replace("steps: 6", "epochs: 1"),
                          **{"log.directory": self.folder / "epochs"})
        self.assertEqual(run["training.epochs"], "1")
        with run.train() as training:  # of 2,640 bytes, 16 tokens a sample and 8 samples a step
            self.assertIn(training.last_step, (20, 21))
            self.assertEqual(run["training.steps"], str(training.last_step))
            self.assertFalse(training.stopped)
        run["data.train"] = self.folder / "nowhere"
        with self.assertRaisesRegex(echelon.Error, "nowhere"):
            run["training.steps"]
        board = self.folder / "board"
        run = self.run_of("unused", **{"log.tensorboard": False, "training.time_limit": 1e-6})
        ended = []
        history = run.fit([echelon.TensorBoard(board), echelon.LambdaCallback(
            on_success=lambda _: ended.append("success"))])
        self.assertTrue(list(board.glob("events.out.tfevents.*")))
        self.assertEqual(ended, [])  # the time limit ended it
        self.assertLess(len(history.step), 6)

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

    def test_fits_after_a_backup(self):
        """After success the run finds its checkpoints, and a further fit goes on. A new run starts
        anew, and its checkpoint takes the place of the earlier one."""
        backup, kept = self.folder / "again", self.folder / "fits/checkpoints"

        def hash_of(step):
            return hashlib.sha256((kept / step / "model/model.safetensors").read_bytes()).digest()
        run = self.run_of("fits")
        run.fit([echelon.BackupAndRestore(backup, save_freq=2)])
        self.assertFalse(backup.exists())
        self.assertEqual([one["step"] for one in run.checkpoints()], [6])
        run["training.steps"] = 8
        self.assertEqual(run.fit([echelon.BackupAndRestore(backup, save_freq=2)]).step, [7, 8])
        first = hash_of("step-00000008")
        backup.mkdir()
        (backup / "step-notes").write_text("mine")
        run = self.run_of("fits", **{"training.steps": 8, "training.seed": 2, "checkpoint.keep": 1})
        history = run.fit([echelon.BackupAndRestore(backup, 2), echelon.BestCheckpoint(2)])
        self.assertEqual(history.step, list(range(1, 9)))
        self.assertNotEqual(hash_of("step-00000008"), first)
        self.assertEqual([path.name for path in backup.iterdir()], ["step-notes"])
        losses = dict(zip((2, 4, 6, 8), history.history["valid_loss"]))
        best = set(sorted(losses, key=losses.get)[:2]) | {6, 8}  # 6: of the first fit
        self.assertEqual(sorted(one["step"] for one in run.checkpoints()), sorted(best))

    def test_signals(self):
        """A signal that arrives while a step is made waits for its end. Handlers of the script
        are called, and are there again after fit."""
        def log(line):
            if not sent and "| loss" in line:  # a step's, not what is said before the first one
                sent.append(signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
        sent, success = [], []
        echelon.set_log(log)  # threads of the library call it during a step
        try:
            history = self.run_of("signals", **{"training.steps": 400}).fit([
                echelon.LambdaCallback(on_success=success.append)])
        finally:
            echelon.set_log(None)
        self.assertEqual((len(sent), success), (1, []))
        last = history.step[-1] if history.step else 0
        self.assertLess(last, 400)
        self.assertTrue((self.folder / f"signals/checkpoints/step-{last:08}").exists())
        self.assertEqual(signal.getsignal(signal.SIGINT), signal.default_int_handler)

        def handle(number, frame):
            raise TimeoutError(number)
        signal.signal(signal.SIGUSR1, handle)
        with self.assertRaises(TimeoutError):
            self.run_of("alarmed").fit([echelon.LambdaCallback(
                on_train_batch_end=lambda step, logs: os.kill(os.getpid(), signal.SIGUSR1))])
        self.assertEqual(signal.getsignal(signal.SIGUSR1), handle)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)

    def test_order(self):
        """As in Keras, each event goes to all callbacks, one after the other; what ends the fit is
        saved, and every callback hears of it."""
        def note(name):
            def event(kind):
                def call(*words):
                    said.append(f"{name} {kind}" + (f" {words[0]}" if len(words) > 1 else ""))
                    if (name, kind, words[0]) == ("a", "save", 4):
                        callbacks[0].training.stop_training = True
                return call
            return echelon.LambdaCallback(**{f"on_{method}": event(kind) for method, kind in (
                ("train_begin", "begin"), ("train_batch_end", "step"), ("test_end", "test"),
                ("save", "save"), ("train_end", "end"), ("success", "success"))})
        said = []
        callbacks = [note("a"), note("b")]
        history = self.run_of("order", **{"checkpoint.every": 4}).fit(callbacks)
        events = ["begin", "step 1", "step 2", "test 2", "step 3", "step 4", "test 4", "save 4",
                  "end", "success"]
        self.assertEqual(said, [f"{name} {event}" for event in events for name in "ab"])
        self.assertEqual(history.step, [1, 2, 3, 4])

    def test_replicas_that_differ(self):
        def stop(step, logs):
            callback.training.stop_training = True
        callback = echelon.LambdaCallback(on_train_batch_end=stop)
        history = self.run_of("apart", echelon.LocalSGD(2, every=2)).fit([callback])
        self.assertEqual(history.step, [1, 2])  # saved after the average

    @unittest.skipUnless(shutil.which("mpirun"), "needs mpirun")
    def test_one_process_differs(self):
        """A callback raises, is interrupted, or stops in one process of two: both end after the
        same step, and say why."""
        (self.folder / "text.yaml").write_text(self.text)
        script = self.folder / "fit.py"
        script.write_text(f"""
import os, sys, traceback
sys.path.insert(0, {str(PACKAGE)!r})
import echelon
rank = os.environ["OMPI_COMM_WORLD_RANK"]
def say(*words):
    os.write(1, (" ".join(map(str, (rank, *words))) + "\\n").encode())  # two processes share it
def differ(step, logs):
    if rank == sys.argv[2] and step == 3:
        if sys.argv[1] == "raise":
            raise KeyError("mine")
        if sys.argv[1] == "interrupt":
            raise KeyboardInterrupt
        callback.training.stop_training = True
callback = echelon.LambdaCallback(
    on_train_batch_end=differ, on_save=lambda step, logs: say("saved", step),
    on_train_end=lambda logs: say("ended", callback.training.stop_training),
    on_success=lambda run: say("success"))
run = echelon.Run(text=open({str(self.folder / 'text.yaml')!r}).read(),
                  **{{"parallel.data": 2}})
try:
    say("made", *run.fit([callback]).step)
except BaseException as error:  # mpirun kills the other process if this one fails
    traceback.print_exc()
    say(type(error).__name__, error)
""")
        mpi = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        for how, rank in (("raise", 1), ("raise", 0), ("interrupt", 1), ("stop", 0), ("stop", 1)):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            done = subprocess.run(["mpirun", "-n", "2", "--oversubscribe", sys.executable, script,
                                   how, str(rank)], env=os.environ | mpi, capture_output=True,
                                  text=True, check=False, timeout=120)
            lines = sorted(done.stdout.splitlines())
            self.assertEqual(done.returncode, 0, done.stderr)
            if how == "stop":
                self.assertEqual(lines, [f"{rank} {what}" for rank in (0, 1) for what in (
                    "ended True", "made 1 2 3", "saved 3", "success")])
                continue
            raised = "KeyError 'mine'" if how == "raise" else "KeyboardInterrupt "
            self.assertIn("in differ", done.stderr)  # of the traceback
            self.assertEqual(lines, sorted([
                f"{rank} {raised}",
                f"{1 - rank} CommunicationError step 3: another process's hook failed"]))
            self.assertFalse((self.folder / "run/checkpoints/step-00000006").exists())

    def test_a_locale_with_commas(self):
        """A process whose numbers have decimal commas gets the same files."""
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", self.folder / "de_DE.UTF-8"],
                       capture_output=True, check=False)
        if not (self.folder / "de_DE.UTF-8" / "LC_NUMERIC").exists():
            self.skipTest("there are no sources of locales (Debian's package locales)")
        script = self.folder / "commas.py"
        script.write_text(f"""
import locale, sys
sys.path.insert(0, {str(PACKAGE)!r})
locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
assert locale.str(0.5) == "0,5"
import echelon
run = echelon.Run(text=open({str(self.folder / 'text.yaml')!r}).read())
run["optimizer.weight_decay"] = 0.25
run.fit([echelon.CSVLogger({str(self.folder / 'log.csv')!r})])
assert run.verify(steps=1).passed and "." in run.plan().svg
assert locale.str(0.5) == "0,5"
""")
        weights, found = "checkpoints/step-00000006/model/model.safetensors", set()
        (self.folder / "text.yaml").write_text(self.text)
        for words in ([sys.executable, script], [PROGRAM, "train", self.folder / "text.yaml",
                                                 "optimizer.weight_decay=0.25"]):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            subprocess.run(words, env=os.environ | {"LOCPATH": str(self.folder)}, check=True,
                           capture_output=True)
            found.add((self.folder / "run" / weights).read_bytes())
            self.assertIn("weight_decay: 0.25", (self.folder / "run/run.yaml").read_text())
            for line in (self.folder / "run/metrics.jsonl").read_text().splitlines():
                json.loads(line)
        self.assertEqual(len(found), 1)

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
    def test_wrong_types(self):
        """No value of a wrong type becomes text that a key accepts."""
        for key, value in {"training.steps": None, "optimizer.learning_rate": b"1",
                           "log.directory": {1: 2}, "data.train": object(),
                           "model.hidden_size": [1], "training.seed": 1.5,
                           "parallel.partition": ["a"], "optimizer.beta1": math.nan}.items():
            with self.assertRaisesRegex(echelon.UsageError, key):
                self.run_of("e", **{key: value})
        with self.assertRaisesRegex(echelon.UsageError, "it is training.steps"):
            self.run_of("e", steps=3)
        run = self.run_of("e")
        for key in (3, None, "training.\0"):
            with self.assertRaisesRegex(echelon.UsageError, "is no key"):
                run[key] = 3
        with self.assertRaisesRegex(echelon.UsageError, "is no strategy"):
            self.run_of("e", echelon.Mirrored)
        with self.assertRaisesRegex(echelon.UsageError, "no such key.*parallel.pipeline"):
            self.run_of("e", echelon.Grid(pipelin=2))
        with self.assertRaisesRegex(echelon.UsageError, "text: a str"):
            echelon.Run(text=b"")
        for wrong in (echelon.ProgressBar, print):
            with self.assertRaisesRegex(echelon.UsageError, "is no Callback"):
                run.fit([wrong])
        for use in (lambda: echelon.checkpoints(None), lambda: echelon.sample(None, "x"),
                    lambda: echelon.evaluate(None, "x"), lambda: echelon.evaluate("x", None)):
            with self.assertRaisesRegex(echelon.UsageError, "is NULL"):
                use()
        with self.assertRaisesRegex(echelon.UsageError, "no function"):
            echelon.set_log("x")

    def test_unset_keys(self):
        run = echelon.Run(text="model: {architecture: llama}")
        self.assertEqual(run["optimizer.name"], "adamw")
        with self.assertRaisesRegex(echelon.UsageError, "training.steps is not set"):
            run["training.steps"]
        self.assertFalse("training.steps" in run)
        self.assertTrue("model.architecture" in run)
        with self.assertRaisesRegex(echelon.UsageError, "training.steps"):
            run["training.stepz"]
        with self.assertRaisesRegex(echelon.UsageError, "no such key"):
            self.assertFalse("training.stepz" in run)

    def test_comm(self):
        """A script that no launcher started has threads, unless its run file says otherwise."""
        path = self.folder / "run.yaml"
        path.write_text(self.text)
        self.assertEqual(echelon.Run(path)["parallel.comm"], "local")
        self.assertEqual(echelon.Run(text="parallel: {comm: ucx}")["parallel.comm"], "ucx")
        path.write_text(self.text + "parallel: {comm: mpi}\n")
        self.assertEqual(echelon.Run(path)["parallel.comm"], "mpi")
        os.environ["WORLD_SIZE"] = "2"
        try:
            self.assertEqual(echelon.Run(text=self.text)["parallel.comm"], "ucx")
        finally:
            del os.environ["WORLD_SIZE"]

    def test_after_the_end(self):
        with self.run_of("e") as run:
            plan = run.plan()
            training = run.train()
        for use in (lambda: run["training.steps"], run.plan, run.train, run.fit):
            with self.assertRaisesRegex(echelon.UsageError, "this run has ended"):
                use()
        self.assertEqual(plan.ranks, 1)
        weights = training.weights
        name = next(iter(weights))
        training.step()
        training.finish()
        training.finish()
        for use in (training.step, training.save, training.validate, lambda: training.done,
                    lambda: training.weights, lambda: weights[name],
                    lambda: training.set("optimizer.clip_norm", 1.0)):
            with self.assertRaisesRegex(echelon.UsageError, "this training has ended"):
                use()

    def test_callbacks_of_another_fit(self):
        """A callback belongs to one fit, and makes no step; a second run writes elsewhere."""
        found = []

        class Nest(echelon.Callback):
            def on_train_batch_end(self, step, logs):
                for use in (self.training.step, self.training.finish, lambda: other.fit([self]),
                            run.fit):
                    try:
                        use()
                    except echelon.Error as error:
                        found.append(str(error))
        run, other = self.run_of("nest", **{"training.steps": 1}), self.run_of("other")
        nest = Nest()
        self.assertEqual(run.fit([nest]).step, [1])
        for error, part in zip(found, ("cannot make a step", "cannot end the training",
                                       "uses this callback", "another run writes")):
            self.assertIn(part, error)
        self.assertEqual(len(found), 4)
        other["training.steps"] = 1
        self.assertEqual(other.fit([echelon.LambdaCallback()]).step, [1])

    def test_other_threads(self):
        """A training may change its thread, but has one at a time."""
        found = []

        def use():
            try:
                found.append(training.step()["step"])
            except echelon.Error as error:
                found.append(str(error))
        with self.run_of("e").train() as training:
            with training._use():  # as in a step
                thread = threading.Thread(target=use)
                thread.start()
                thread.join()
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
            self.assertIn("another thread is using this training", found[0])
            self.assertEqual(found[1], 1)

    def test_log_functions(self):
        """They run while the library waits for them."""
        found = []

        def log(_):
            for use in (lambda: training.step(), lambda: run["training.steps"]):
                try:
                    use()
                except (NameError, echelon.Error) as error:
                    found.append(str(error))
        echelon.set_log(log)
        try:
            with self.run_of("e", echelon.Mirrored(2)) as run, run.train() as training:
                training.step()
        finally:
            echelon.set_log(None)
        self.assertTrue(any("cannot use a training" in error for error in found), found)
        self.assertTrue(any("cannot use a run" in error for error in found), found)

    def test_fork(self):
        """The child has no ranks: its calls fail, and the parent goes on."""
        with self.run_of("e", echelon.Mirrored(2)).train() as training:
            training.step()
            weights = training.weights
            name = next(iter(weights))
            child = os.fork()
            if child == 0:
                failed = 0
                for use in (training.step, training.save, training.validate, training.finish,
                            lambda: weights[name]):
                    try:
                        use()
                    except echelon.UsageError:
                        failed += 1
                os._exit(failed)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 5)
            self.assertEqual(training.step()["step"], 2)

    def test_two_fits_of_which_one_fails(self):
        """In two threads; the other's bits do not change."""
        undisturbed = self.run_of("undisturbed", echelon.Mirrored(2)).fit()
        found = {}

        def fit(name, *callbacks):
            try:
                found[name] = self.run_of(name, echelon.Mirrored(2)).fit(callbacks)
            except KeyError as error:
                found[name] = error

        def fail(step, logs):
            if step == 3:
                raise KeyError("mine")
        threads = [threading.Thread(target=fit, args=("good",)), threading.Thread(
            target=fit, args=("bad", echelon.LambdaCallback(on_train_batch_end=fail)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertIsInstance(found["bad"], KeyError)
        self.assertEqual(found["good"].history["loss"], undisturbed.history["loss"])
        self.assertEqual(self.weights("good"), self.weights("undisturbed"))

    def test_nothing_grows(self):
        """1,000 runs, and 30 trainings, leave no descriptor, thread or shared memory."""
        def count():
            return [len(os.listdir(path)) for path in ("/proc/self/fd", "/proc/self/task")] + [
                [name for name in os.listdir("/dev/shm") if str(os.getpid()) in name]]

        def train():
            with self.run_of("many", echelon.Mirrored(2)) as run, run.train() as training:
                training.step()
        train()
        before = count()
        for number in range(1000):
            with self.run_of("many", **{"training.seed": number}) as run:
                self.assertEqual(run["training.seed"], str(number))
        for _ in range(30):
            train()
        self.assertEqual(count(), before)

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

    def test_tensors(self):
        with self.run_of("e").train() as training:
            weights = training.weights
            with self.assertRaisesRegex(KeyError, "did you mean transformer.wte.weight"):
                weights["transformer.wte.weights"]
            self.assertIsNone(weights.get("x"))
            with self.assertRaisesRegex(echelon.UsageError, "has 8224 bytes|bytes, not 3"):
                weights["transformer.wte.weight"] = b"abc"
            with self.assertRaisesRegex(echelon.UsageError, "not a float"):
                weights["transformer.wte.weight"] = 1.0

    def test_gradients(self):
        """A callback reads them as the metrics say; without the option there are none."""
        norms, seen = [], []

        def look(step, logs):
            found = callback.training.gradients
            norms.append(math.sqrt(sum(x * x for name in found for x in
                                       memoryview(bytes(found[name])).cast("f"))))
            seen.append(set(found) == set(callback.training.weights))
        callback = echelon.LambdaCallback(on_train_batch_end=look)
        history = self.run_of("g", echelon.Zero(2, stage=2)).fit([callback], gradients=True)
        for norm, said in zip(norms, history.history["grad_norm"], strict=True):
            self.assertAlmostEqual(norm, said, delta=1e-5 * said)
        self.assertTrue(all(seen))
        with self.run_of("e").train() as training:
            training.step()
            with self.assertRaisesRegex(echelon.UsageError, "gradients=True"):
                training.gradients  # pylint: disable=pointless-statement
        with self.run_of("f").train(gradients=True) as training:
            name = next(iter(training.gradients))
            with self.assertRaisesRegex(echelon.UsageError, "no step"):
                training.gradients[name]  # pylint: disable=expression-not-assigned
        with self.assertRaisesRegex(echelon.UnsupportedError, "parallel.strategy=local_sgd"):
            self.run_of("l", echelon.LocalSGD(2, every=2)).train(gradients=True)

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
        one, = echelon.score(self.folder / "trained", [("the", " fox")])
        self.assertEqual((one.tokens, one.greedy), (4, None))
        first, second, both = echelon.score(
            self.folder / "trained", [("the", " f"), ("the f", "o"), ("the", " fo")],
            begin_of_text=False, greedy=True)
        self.assertAlmostEqual(both.log_likelihood, first.log_likelihood + second.log_likelihood, 4)
        self.assertEqual(both.greedy, first.greedy and second.greedy)
        self.assertEqual(echelon.score("nowhere", []), [])
        with self.assertRaisesRegex(echelon.UsageError, "text 0: has no tokens"):
            echelon.score(self.folder / "trained", [("the", "")])
        text = run.sample("the quick", tokens=20)
        said = subprocess.run([PROGRAM, "sample", self.folder / "trained", "the quick", "-n", "20"],
                              check=True, capture_output=True)
        # The program ends its line.
        self.assertEqual(text.removesuffix("\n") + "\n", said.stdout.decode(errors="replace"))
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
        page = plan.html()
        self.assertTrue(page.startswith("<!doctype html>") and '"touched": [' in page)
        self.assertIn("<pre>", plan._repr_html_())
        with self.assertRaises(IndexError):
            plan.bytes(4)

    def test_keys(self):
        keys = echelon.keys()
        self.assertIn("llama", keys["model.architecture"]["choices"].split())
        self.assertEqual(keys["optimizer.clip_norm"]["fallback"], "1")
        self.assertEqual(self.run_of("k")["training.steps"], "6")
        lines = []
        echelon.set_log(lines.append)
        with self.assertRaises(echelon.UsageError):
            self.run_of("k", **{"training.stepz": 3})
        echelon.set_log(None)
        self.assertTrue(any("training.steps" in line for line in lines))


class Help(unittest.TestCase):
    def test_help(self):
        """help(echelon) has all that the package exports, and each of it has a docstring."""
        text = pydoc.plain(pydoc.render_doc(echelon))
        for name in echelon.__all__:
            shown = getattr(echelon, name)
            self.assertRegex(text, rf"\b{name}\b")
            if name != "Keys":
                self.assertTrue(shown.__doc__, name)
            methods = vars(shown) if isinstance(shown, type) else {}
            for method, value in methods.items():
                if callable(value) and not method.startswith("_") and issubclass(
                        shown, (echelon.Run, echelon.Plan, echelon.Training, echelon.Tensors)):
                    self.assertTrue(value.__doc__, f"{name}.{method}")

    def test_imports(self):
        """Importing the package imports neither NumPy nor PyTorch."""
        code = "import echelon, sys; print({'numpy', 'torch', 'tqdm'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                              env=os.environ | {"PYTHONPATH": str(PACKAGE)}, check=True)
        self.assertEqual(done.stdout, "set()\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
