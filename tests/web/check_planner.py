#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planner in a browser (docs/planner.md): its JSON is the command line's, byte for byte; in
headless Chromium, what a person would click, and how long answers take; a hostile config.json runs
no script.

    check_planner.py ECHELON FOLDER CLUSTERS [--screenshots FOLDER] [TEST ...]

FOLDER is what tools/web.sh writes. Needs Node.js for the first part, Chromium and chromedriver
(Debian's chromium-driver) for the second; a part that lacks its program is skipped with a message.
Answers are limited in processor time, as a busy machine changes it less than the time of a clock.
On a machine with more work than cores, slow answers skip this test instead of failing it.
"""
import base64
import functools
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

ECHELON, FOLDER, CLUSTERS = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
SCREENSHOTS = None
COMMON = ["parallel.device=cuda", "parallel.threads=1"]
TOKENS = 10**12  # as the page's field has them: 1T
SYSTEMS = ["megatron", "torchtitan", "deepspeed"]
# model, cluster, ranks, words
CASES = [
    ("GPT-2 XL, 1.6B", "a100", 8, []),
    ("GPT-2 XL, 1.6B", "h100", 16, ["parallel.pipeline=4", "parallel.zero=1",
                                    "training.global_batch_size=64"]),
    ("GPT-3, 175B", "a100", 1024, ["parallel.pipeline=16", "parallel.tensor=8", "parallel.zero=1",
                                   "parallel.sequence=true", "memory.recompute=selective",
                                   "training.global_batch_size=512"]),
    ("GPT-3, 175B", "b200", 256, []),
    ("Llama 2 7B", "a100", 16, ["parallel.tensor=2"]),
    ("GPT-2 XL, 1.6B", "cpu_ethernet", 16, ["precision.compute=fp32"]),
    ("Llama 2 70B", "h200", 128, ["parallel.tensor=8", "parallel.sequence=true"]),
    ("Llama 3 8B", "h100", 64, []),
    ("Llama 3 8B", "h100", 64, ["parallel.pipeline=4", "parallel.schedule=interleaved",
                                "parallel.virtual_stages=2", "parallel.zero=1",
                                "training.global_batch_size=128"]),
    ("Llama 3 8B", "h100", 8, ["parallel.context=4", "data.sequence_length=8192",
                               "training.global_batch_size=16"]),
    ("Llama 3 70B", "gb200_nvl72", 288, ["parallel.tensor=8", "training.global_batch_size=288"]),
    ("Llama 3.1 405B", "h100", 2048, ["parallel.tensor=8", "memory.recompute=full"]),
    ("Mistral 7B v0.1", "h100", 16, ["memory.recompute=full"]),
    ("Mixtral 8x7B", "h100", 64, ["parallel.expert=8"]),
    ("Mixtral 8x7B", "h100", 32, ["memory.offload_optimizer=host"]),
    ("Qwen2.5 72B", "h200", 256, ["parallel.tensor=4"]),
    ("Qwen3 8B", "b200", 32, ["parallel.pipeline=2", "parallel.schedule=zero-bubble",
                              "parallel.zero=1", "training.global_batch_size=64"]),
    ("Qwen3 32B", "h100", 128, ["parallel.tensor=2"]),
    ("OLMo 2 13B", "a100", 32, []),
    ("Phi-3 mini, 3.8B", "a100", 16, ["optimizer.name=adamw8"]),
]
NODE = """
const fs = require('fs');
globalThis.postProgress = () => {};
(async () => {
  const [kind, folder, words, ranks, tokens, system, steps] = process.argv.slice(2);
  const planner = await require(folder + '/planner.js')(
    {wasmBinary: fs.readFileSync(folder + '/planner.wasm')});
  planner.FS.mkdir('model');
  planner.FS.writeFile('model/config.json', fs.readFileSync('model/config.json'));
  planner.FS.writeFile('cluster.yaml', fs.readFileSync('cluster.yaml'));
  const types = ['string', 'number', 'number', 'string', 'number'];
  const values = [words, Number(ranks), Number(tokens), system, Number(steps)];
  const n = kind === 'search' ? 4 : 5;
  const json = planner.ccall('planner_' + kind, 'string', types.slice(0, n), values.slice(0, n));
  fs.writeFileSync('web.json', json || planner.ccall('planner_error', 'string', [], []));
  fs.writeFileSync('web.args', planner.ccall('planner_emitted', 'string', [], []));
})();
"""


def models():
    text = (FOLDER / "data.js").read_text()
    data = json.loads(text[text.index("{"):text.rindex(";")])
    return {row["name"]: row for row in data["models"]}


def lacking(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    return f"no {', '.join(missing)}" if missing else None


def write_inputs(folder, name, cluster):
    """The model and the cluster file, where the page and the module have them."""
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(models()[name]["config"]))
    shutil.copy(CLUSTERS / f"{cluster}.yaml", folder / "cluster.yaml")


@functools.cache
def command_line(name, cluster, ranks, words, options=()):
    """What `echelon plan --json` prints, and the file of --emit; both as bytes."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_inputs(folder, name, cluster)
        said = subprocess.run([ECHELON, "plan", "--model", "model", "--cluster", "cluster.yaml",
                               "--ranks", str(ranks), "--tokens", str(TOKENS), "--json", *options,
                               *COMMON, *words], cwd=folder, capture_output=True, timeout=900,
                              check=False)
        if said.returncode != 0:
            raise AssertionError(said.stderr.decode())
        emitted = folder / "layout.args"
        return said.stdout, emitted.read_bytes() if emitted.exists() else b""


class Json(unittest.TestCase):
    """The module in Node.js against the command line."""

    @classmethod
    def setUpClass(cls):
        if lacking("node"):
            raise unittest.SkipTest(lacking("node"))

    def compare(self, kind, name, cluster, ranks, words, steps=False, system=""):
        options = ["--search"] * (kind == "search") + ["--steps"] * steps
        if system:
            options += ["--emit-for", system, "--emit", "layout.args"]
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            write_inputs(folder, name, cluster)
            (folder / "run.js").write_text(NODE)
            subprocess.run(["node", folder / "run.js", kind, FOLDER, "\n".join(COMMON + words),
                            str(ranks), str(TOKENS), system, str(int(steps))], cwd=folder,
                           check=True, timeout=900)
            made, emitted = ((folder / f"web.{end}").read_bytes() for end in ("json", "args"))
        self.assertTrue(made.startswith(b"{"), made[:300])
        said = command_line(name, cluster, ranks, tuple(words), tuple(options))
        self.assertTrue(made == said[0], "the page's JSON is not the command line's")
        self.assertEqual(emitted, said[1])
        return json.loads(made), emitted

    def test_json_is_the_command_lines(self):
        for name, cluster, ranks, words in CASES:
            with self.subTest(f"{name} on {ranks} of {cluster}: {' '.join(words)}"):
                self.compare("plan", name, cluster, ranks, words)

    def test_lists_are_the_command_lines(self):
        self.compare("plan", "Llama 3 8B", "h100", 64,
                     ["parallel.pipeline=4", "parallel.zero=1", "training.global_batch_size=128"],
                     steps=True)

    def test_arguments_are_the_command_lines(self):
        for system in SYSTEMS:
            with self.subTest(system):
                made, emitted = self.compare(
                    "plan", "Llama 3 8B", "h100", 64,
                    ["parallel.pipeline=4", "parallel.tensor=2", "parallel.zero=1",
                     "training.global_batch_size=128"], system=system)
                self.assertEqual(made["emitted"]["system"], system)
                self.assertTrue(emitted)

    def test_the_search_is_the_command_lines(self):
        """Of a space of few layouts, as a search in the browser has one thread."""
        for system in ("", "megatron"):
            with self.subTest(system or "our own"):
                self.compare("search", "GPT-2 XL, 1.6B", "h100", 8,
                             ["parallel.pipeline=1", "parallel.context=1",
                              "parallel.sequence=false", "memory.recompute=none",
                              "training.global_batch_size=16"], system=system)


class Driver:
    """The few calls of WebDriver that the tests need."""

    def __init__(self, width, height, phone):
        self.process = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if "on port" in line and "successfully" in line:
                self.base = f"http://127.0.0.1:{line.rstrip().rstrip('.').split()[-1]}"
                break
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     f"--window-size={width},{height}"]
        options = {"args": arguments}
        if phone:
            options["mobileEmulation"] = {"deviceMetrics": {"width": width, "height": height,
                                                            "pixelRatio": 2, "touch": True}}
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options,
                                  "timeouts": {"script": 120000}}}
        self.session = None
        self.session = self.call("POST", "/session", {"capabilities": wanted})["sessionId"]

    def seconds(self):
        """Processor time, in seconds, of the threads for which a person waits: the pages' main
        threads and their workers. Chromium compiles and draws on others at the same time."""
        ticks = 0
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                is_page = b"--type=renderer" in (process / "cmdline").read_bytes()
                if not is_page or not self.has_started(process.name):
                    continue
                for thread in (process / "task").iterdir():
                    name, _, rest = (thread / "stat").read_text().rpartition(")")
                    if thread.name == process.name or "(DedicatedWorker" in name:
                        ticks += sum(map(int, rest.split()[11:13]))
            except OSError:
                continue  # it has ended
        return ticks / os.sysconf("SC_CLK_TCK")

    def has_started(self, process):
        while process not in ("0", "1", str(self.process.pid)):
            fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            process = fields[1]  # its parent
        return process == str(self.process.pid)

    def call(self, method, path, body=None):
        path = f"/session/{self.session}{path}" if self.session else path
        request = urllib.request.Request(self.base + path, method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=180) as answer:
            return json.load(answer)["value"]

    def get(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def screenshot(self, path):
        """The whole page."""
        size = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        view = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], 6000), "scale": 1}
        made = self.call("POST", "/goog/cdp/execute", {"cmd": "Page.captureScreenshot", "params": {
            "clip": view, "captureBeyondViewport": True}})
        pathlib.Path(path).write_bytes(base64.b64decode(made["data"]))

    def close(self):
        try:
            self.call("DELETE", "")
        finally:
            self.process.terminate()
            self.process.wait(timeout=20)
            self.process.stdout.close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if lacking("chromium", "chromedriver"):
            raise unittest.SkipTest(lacking("chromium", "chromedriver"))
        handler = functools.partial(Quiet, directory=str(FOLDER))
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.url = f"http://127.0.0.1:{cls.server.server_address[1]}/"
        cls.driver = Driver(1280, 900, phone=False)

    @classmethod
    def tearDownClass(cls):
        cls.driver.close()
        cls.server.shutdown()
        cls.server.server_close()

    def settle(self, driver=None, seconds=300):
        """Waits until no request is under way; returns what the page says."""
        driver, end = driver or self.driver, time.monotonic() + seconds
        while driver.run("return !document.getElementById('cancel').hidden"):
            self.assertLess(time.monotonic(), end, "no answer")
            time.sleep(0.05)
        return driver.run("return [document.getElementById('status').textContent, "
                          "document.getElementById('error').hidden ? '' : "
                          "document.getElementById('error').textContent]")

    def open(self, driver=None):
        (driver or self.driver).get(self.url)
        return self.settle(driver)

    def set(self, field, value):
        self.driver.run("const field = document.getElementById(arguments[0]);"
                        "field.value = arguments[1];"
                        "field.dispatchEvent(new Event('input'));"
                        "field.dispatchEvent(new Event('change'));", field, value)
        return self.settle()

    def click(self, text):
        self.driver.run("const found = [...document.querySelectorAll('button')].find(button => "
                        "button.textContent === arguments[0]); found.scrollIntoView(); "
                        "found.click();", text)

    def keep(self, name, driver=None):
        if SCREENSHOTS:
            (driver or self.driver).screenshot(SCREENSHOTS / f"{name}.png")

    def plan_json(self):
        """The JSON of the result that the page shows."""
        return self.driver.run("return state.json").encode()

    def results(self):
        return self.driver.run("return document.getElementById('results').textContent")

    def test_plan_change_and_compare(self):
        self.open()
        self.keep("desktop")
        self.assertIn("It fits", self.results())
        for heading in ("Ranks", "Memory", "Who computes what, when", "Bytes that move", "Run file",
                        "Where the time goes"):
            self.assertIn(heading, self.results())
        self.assertNotIn("Compared with", self.results())
        self.assertEqual(self.set("parallel.tensor", "8")[1], "")
        self.assertRegex(self.results(), r"slower than the first layout, most of it \w+")
        self.assertIn("tensor: 8", self.results())
        self.keep("desktop-compared")
        error = self.set("parallel.tensor", "7")[1]
        self.assertIn("parallel.tensor", error)
        self.assertIn("It fits", self.results())  # the last result stays
        self.set("parallel.tensor", "")
        self.click("Make the lists")
        self.settle()
        self.click("Next compute")
        self.assertIn("live on the device", self.results())
        chosen = self.driver.run("return document.querySelector('.row.is-chosen').textContent")
        self.assertRegex(chosen, "compute: ")
        self.keep("desktop-steps")

    def test_json_is_the_command_lines(self):
        self.open()
        for name, cluster, ranks, words in CASES:
            with self.subTest(f"{name} on {ranks} of {cluster}: {' '.join(words)}"):
                self.driver.run("byId('model').value = arguments[0]; chooseModel();"
                                "byId('cluster').value = arguments[1]; chooseCluster();"
                                "byId('gpu').checked = true; byId('ranks').value = arguments[2];"
                                "byId('words').value = arguments[3];",
                                name, cluster, ranks, "\n".join(words))
                self.click("Plan")
                self.assertEqual(self.settle()[1], "")
                said = command_line(name, cluster, ranks, tuple(words))
                self.assertTrue(self.plan_json() == said[0],
                                "the page's JSON is not the command line's")

    def answer_of(self, model, limit, **fields):
        """Asserts that the page answers within so many seconds of processor time, with progress."""
        self.open()
        self.driver.run("byId('model').value = arguments[0]; chooseModel();"
                        "for (const key in arguments[1]) byId(key).value = arguments[1][key];"
                        "window.said = []; const show = sayProgress;"
                        "sayProgress = () => { said.push(state.doing); show(); };", model, fields)
        before, began = self.driver.seconds(), time.monotonic()
        self.click("Plan")
        while self.driver.run("return !document.getElementById('cancel').hidden"):
            self.assertLess(time.monotonic() - began, 60 * limit, "no answer")
            time.sleep(0.5)
        said = set(self.driver.run("return said"))
        took, clock = self.driver.seconds() - before, time.monotonic() - began
        print(f"{model}: {took:.2f} s of processors, {clock:.2f} s by the clock; {sorted(said)}")
        self.assertIn("It fits", self.results())
        self.assertTrue(self.settle()[0].startswith("computed in"))
        self.assertGreater(len(said & {"sorting ranks by what they do", "planning",
                                       "checking the lists of steps outside of training",
                                       "checking and simulating the training step"}), 1)
        load = os.getloadavg()[0]
        if took >= limit and load > os.cpu_count():  # others' work slows down ours
            self.skipTest(f"{took:.2f} s with a load of {load:.1f}; needs idle cores")
        self.assertLess(took, limit)

    def test_answers_soon(self):
        """8B on 64 ranks; 175B on 1,024 as the page has it first, and as Megatron-LM has it."""
        layout = {"parallel.pipeline": "16", "parallel.tensor": "8", "parallel.zero": "1",
                  "parallel.sequence": "true", "memory.recompute": "selective",
                  "training.global_batch_size": "512"}
        for model, limit, fields in (("Llama 3 8B", 2, {}), ("GPT-3, 175B", 10, {}),
                                     ("GPT-3, 175B", 10, layout)):
            with self.subTest(f"{model} {fields}"):
                self.answer_of(model, limit, **fields)

    def test_arguments_for_other_systems(self):
        self.open()
        for system, title, argument in (
                ("megatron", "Megatron-LM", "--tensor-model-parallel-size"),
                ("torchtitan", "torchtitan", "tensor_parallel_degree"),
                ("deepspeed", "DeepSpeed", "zero_optimization")):
            self.driver.run("byId('system').value = ''")
            self.set("parallel.tensor", "2")
            self.click(title)
            self.assertEqual(self.settle()[1], "")
            self.assertIn(f"Arguments for {system}", self.results())
            self.assertIn(argument, self.results())
            self.keep(f"desktop-{system}")
        self.assertIn("Memory that differs by design", self.results())
        self.assertIn("parallel.context", self.set("parallel.context", "2")[1])  # DeepSpeed
        self.set("system", "torchtitan")
        self.assertEqual(self.set("parallel.zero", "1")[1], "")
        self.assertRegex(self.results(), "What this system does not have.*parallel.zero")
        self.assertEqual(self.set("system", "")[1], "")
        self.assertNotIn("Arguments for torchtitan", self.results())

    def test_dropped_files(self):
        self.open()
        data = models()["GPT-2 XL, 1.6B"]["config"]
        drop = ("const files = new DataTransfer();"
                "files.items.add(new File([arguments[1]], arguments[0]));"
                "document.dispatchEvent(new DragEvent('drop', {dataTransfer: files}));")
        self.driver.run(drop, "config.json", json.dumps(data))
        end = time.monotonic() + 60
        while "gpt2, " not in self.results() and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(self.settle()[1], "")
        self.assertIn("gpt2, 1.56B parameters, 64 ranks", self.results())
        self.driver.run(drop, "mine.yaml", (CLUSTERS / "a100.yaml").read_text())
        while "A100" not in self.results() and time.monotonic() < end:
            time.sleep(0.1)
        self.assertIn("A100-80GB", self.results())
        self.driver.run(drop, "large.json", " " * (4 * 2**20 + 1))
        time.sleep(0.3)
        self.assertIn("larger than 4 MiB", self.settle()[1])

    def test_choose_zoom_and_step(self):
        self.open()
        self.set("parallel.pipeline", "4")
        self.set("parallel.zero", "1")
        self.set("training.global_batch_size", "128")
        picture = "return document.querySelector('canvas[tabindex]').toDataURL()"
        whole = self.driver.run(picture)
        self.click("Zoom in")
        self.assertNotEqual(self.driver.run(picture), whole)
        self.click("Whole step")
        self.assertEqual(self.driver.run(picture), whole)
        self.driver.run("const canvas = document.querySelector('.mesh canvas'), "
                        "box = canvas.getBoundingClientRect();"
                        "canvas.dispatchEvent(new MouseEvent('click', {clientX: box.left + 200, "
                        "clientY: box.top + box.height - 10}));")
        self.assertRegex(self.results(), r"Rank [1-9]\d*: stage 3")

    def test_does_not_fit(self):
        self.open()
        self.set("model", "GPT-3, 175B")
        error = self.set("ranks", "8")[1]
        self.assertRegex(error, r"needs .* and may use")
        self.assertEqual(self.set("ranks", "1024")[1], "")

    def test_search(self):
        self.open()
        self.set("model", "GPT-2 XL, 1.6B")
        for field, value in (("parallel.pipeline", "1"), ("parallel.context", "1"),
                             ("parallel.sequence", "false"), ("memory.recompute", "none"),
                             ("training.global_batch_size", "16")):
            self.driver.run("document.getElementById(arguments[0]).value = arguments[1]", field,
                            value)
        self.click("Search for the fastest layouts")
        self.settle()
        self.settle()
        self.assertIn("planned and simulated", self.results())
        self.driver.run("document.querySelectorAll('tr.can')[1].click()")
        self.settle()
        self.assertIn("Compared with the fastest layout", self.results())
        self.keep("desktop-search")
        # A second search is as wide: what a layout has set is open, and what was typed is not.
        layouts = "return JSON.stringify(state.search.candidates.map(one => one.keys))"
        found, shown = self.driver.run(layouts), self.driver.run("return state.json")
        self.click("Search for the fastest layouts")
        self.settle()
        self.settle()
        self.assertEqual(self.driver.run(layouts), found)
        self.assertNotEqual(self.driver.run("return state.json"), shown)
        self.assertEqual(self.driver.run("return byId('parallel.pipeline').value"), "1")
        self.assertNotIn("Compared with", self.results())
        # Another model is compared with no layout of this one.
        self.set("config", json.dumps(models()["Llama 3 8B"]["config"]))
        self.click("Plan")
        self.settle()
        self.assertIn("llama, 8.03B parameters", self.results())
        self.assertNotIn("Compared with", self.results())
        self.assertNotIn("planned and simulated", self.results())

    def test_hostile_config_runs_no_script(self):
        self.open()
        script = "<img src=x onerror='window.hostile=1'><script>window.hostile=1</script>"
        cluster = self.driver.run("return document.getElementById('cluster-text').value")
        self.driver.run("window.hostile = 0")
        for config in ({"model_type": script}, {"model_type": "llama", script: script},
                       {"model_type": "llama", "hidden_act": script}, script, "{", "[" * 100000):
            text = config if isinstance(config, str) else json.dumps(config)
            self.set("config", text)
            self.click("Plan")
            self.assertNotEqual(self.settle()[1], "")
        self.set("model", "Llama 3 8B")
        name = f"</script><!--{script}\u2028"
        lines = [line for line in cluster.splitlines() if not line.startswith("name:")]
        self.set("cluster-text", f"name: '{name[:20]}'\n" + "\n".join(lines))
        self.click("Plan")
        self.settle()
        self.assertIn(name[:20], self.results())
        self.set("words", f"training.steps={script}")
        self.click("Plan")
        self.assertIn("<img", self.settle()[1])
        time.sleep(0.3)
        self.assertEqual(self.driver.run("return window.hostile"), 0)
        self.assertEqual(self.driver.run("return document.querySelectorAll('img').length"), 0)

    def test_nothing_else_is_loaded(self):
        self.open()
        loaded = self.driver.run("return performance.getEntriesByType('resource').map(one => "
                                 "one.name)")
        self.assertTrue(loaded and all(name.startswith((self.url, "data:")) for name in loaded),
                        loaded)

    def test_phone(self):
        desktop, self.driver = self.driver, Driver(390, 844, phone=True)
        try:
            self.open()
            self.assert_narrow()
            self.keep("phone")
            self.assertEqual(self.set("parallel.tensor", "2")[1], "")
            self.click("Megatron-LM")
            self.assertEqual(self.settle()[1], "")
            self.click("Make the lists")
            self.assertEqual(self.settle()[1], "")
            self.assert_narrow()
            self.assertIn("Compared with", self.results())
            self.keep("phone-changed")
        finally:
            self.driver.close()
            self.driver = desktop

    def assert_narrow(self):
        """The page does not scroll sideways."""
        wide = self.driver.run("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(wide[0], wide[1])


if __name__ == "__main__":
    rest = sys.argv[4:]
    if rest[:1] == ["--screenshots"]:
        SCREENSHOTS = pathlib.Path(rest[1])
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        rest = rest[2:]
    os.environ.pop("DISPLAY", None)
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
