#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planner in a browser (docs/planner.md): its JSON is the command line's, byte for byte; in
headless Chromium, what a person would click; a hostile config.json runs no script.

    check_planner.py ECHELON FOLDER CLUSTERS [--screenshots FOLDER] [TEST ...]

FOLDER is what tools/web.sh writes. Needs Node.js for the first part, Chromium and chromedriver
(Debian's chromium-driver) for the second; a part that lacks its program is skipped with a message.
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
  const [folder, config, cluster, words, ranks, steps, out] = process.argv.slice(2);
  const planner = await require(folder + '/planner.js')(
    {wasmBinary: fs.readFileSync(folder + '/planner.wasm')});
  planner.FS.mkdir('model');
  planner.FS.writeFile('model/config.json', fs.readFileSync(config));
  planner.FS.writeFile('cluster.yaml', fs.readFileSync(cluster));
  const json = planner.ccall('planner_plan', 'string', ['string', 'number', 'number', 'number'],
                             [words, Number(ranks), 0, Number(steps)]);
  fs.writeFileSync(out, json || planner.ccall('planner_error', 'string', [], []));
})();
"""


def models():
    text = (FOLDER / "data.js").read_text()
    data = json.loads(text[text.index("{"):text.rindex(";")])
    return {row["name"]: row for row in data["models"]}


def lacking(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    return f"no {', '.join(missing)}" if missing else None


class Json(unittest.TestCase):
    """The module in Node.js against the command line."""

    @classmethod
    def setUpClass(cls):
        if lacking("node"):
            raise unittest.SkipTest(lacking("node"))

    def compare(self, name, cluster, ranks, words, steps):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "model").mkdir()
            (folder / "model/config.json").write_text(json.dumps(models()[name]["config"]))
            (folder / "run.js").write_text(NODE)
            path = CLUSTERS / f"{cluster}.yaml"
            words = COMMON + words
            subprocess.run(["node", folder / "run.js", FOLDER, "model/config.json", path,
                            "\n".join(words), str(ranks), str(int(steps)), "web.json"],
                           cwd=folder, check=True, timeout=600)
            said = subprocess.run([ECHELON, "plan", "--model", "model", "--cluster", path,
                                   "--ranks", str(ranks), "--json", *["--steps"] * steps, *words],
                                  cwd=folder, capture_output=True, timeout=600, check=False)
            made = (folder / "web.json").read_bytes()
            self.assertEqual(said.returncode, 0, said.stderr.decode())
            self.assertTrue(made.startswith(b"{"), made[:300])
            self.assertTrue(made == said.stdout, "the page's JSON is not the command line's")

    def test_json_is_the_command_lines(self):
        for name, cluster, ranks, words in CASES:
            with self.subTest(f"{name} on {ranks} of {cluster}: {' '.join(words)}"):
                self.compare(name, cluster, ranks, words, steps=False)

    def test_lists_are_the_command_lines(self):
        self.compare("Llama 3 8B", "h100", 64, ["parallel.pipeline=4", "parallel.zero=1",
                                                "training.global_batch_size=128"], steps=True)

    def test_the_search_is_the_command_lines(self):
        """Of a space of few layouts, as a search in the browser has one thread."""
        run = NODE.replace("planner_plan", "planner_search").replace(
            ", 'number'],", "],", 1).replace(", 0, Number(steps)]", ", 0]")
        words = COMMON + ["parallel.pipeline=1", "parallel.context=1",
                          "parallel.sequence=false", "memory.recompute=none",
                          "training.global_batch_size=16"]
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "model").mkdir()
            (folder / "model/config.json").write_text(
                json.dumps(models()["GPT-2 XL, 1.6B"]["config"]))
            (folder / "run.js").write_text(run)
            path = CLUSTERS / "h100.yaml"
            subprocess.run(["node", folder / "run.js", FOLDER, "model/config.json", path,
                            "\n".join(words), "8", "0", "web.json"], cwd=folder, check=True,
                           timeout=900)
            said = subprocess.run([ECHELON, "plan", "--model", "model", "--cluster", path,
                                   "--ranks", "8", "--search", "--json", *words], cwd=folder,
                                  capture_output=True, timeout=900, check=False)
            self.assertEqual(said.returncode, 0, said.stderr.decode())
            self.assertTrue((folder / "web.json").read_bytes() == said.stdout)


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
        self.assertIn("live on the device", self.results())
        self.click("Next compute")
        chosen = self.driver.run("return document.querySelector('.row.is-chosen').textContent")
        self.assertRegex(chosen, "compute: ")
        self.keep("desktop-steps")

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
        driver = Driver(390, 844, phone=True)
        try:
            self.open(driver)
            wide = driver.run("return [document.documentElement.scrollWidth, innerWidth]")
            self.assertLessEqual(wide[0], wide[1])
            self.keep("phone", driver)
        finally:
            driver.close()


if __name__ == "__main__":
    rest = sys.argv[4:]
    if rest[:1] == ["--screenshots"]:
        SCREENSHOTS = pathlib.Path(rest[1])
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        rest = rest[2:]
    os.environ.pop("DISPLAY", None)
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
