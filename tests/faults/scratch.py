# SPDX-License-Identifier: Apache-2.0
"""A copy of the source tree with a build of its own, in which faults are tried."""
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import time

BUILD_LIMIT_S = 1800
FILE_BYTES = 2 << 30
TEST_LINE = re.compile(r"^(add_test|set_tests_properties)\("
                       r"(?:\[=+\[)?([^\s\]]+)(?:\]=+\])? (.*)\)$", re.M)


_running = set() # process groups


def run(command, limit_s, **options):
    """Runs a command in a process group of its own: (status, output). Status None: it was late."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True, text=True,
                               errors="replace", **options)
    _running.add(process.pid)
    try:
        output, _ = process.communicate(timeout=limit_s)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output
    finally:
        _running.discard(process.pid)


def end_when_told():
    """SIGINT and SIGTERM end this process and all that it has started."""
    def end(number, frame):
        for group in list(_running):
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os._exit(128 + number)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)


def bound_test():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))


_fence = []


def fence():
    """Words before a command that keep its signals to its own processes, since a fault may send one
    to any process. There are none if the system does not allow it."""
    if not _fence:
        words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
                 '"$@"; exit $?', "sh"]
        allowed = shutil.which("unshare") and run([*words, "true"], 60)[0] == 0
        _fence.append(words if allowed else [])
    return _fence[0]


def source_files(root):
    """Files of a checkout, or of an unpacked archive, relative to its root."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others",
                                 "--exclude-standard"], capture_output=True, check=True).stdout
        names = [os.fsdecode(name) for name in listed.split(b"\0") if name]
    else:
        names = [str(path.relative_to(root)) for path in root.rglob("*")
                 if path.relative_to(root).parts[0] not in ("build", "run", "runs", "data")]
    return sorted({name for name in names if (root / name).is_file()})


class Scratch:
    """folder has source/, with a release build where presets put theirs, so that ccache knows its
    objects. Files that did not change keep their times, so that the next run rebuilds little."""

    def __init__(self, root, folder, jobs, options=()):
        self.root, self.folder, self.jobs = pathlib.Path(root), pathlib.Path(folder), jobs
        self.source = self.folder / "source"
        self.build = self.source / "build" / "faults"
        self.options, self.tests, self.targets = list(options), {}, None
        self.environment = {**os.environ, "OMP_WAIT_POLICY": "passive",
                            "TMPDIR": str(self.folder / "tmp"),
                            "ASAN_OPTIONS": "detect_leaks=0",
                            "ECHELON_LATTICE_FIRST": "yes"}
        for key in ("ECHELON_SHARE", "ECHELON_LATTICE", "ECHELON_VERIFY_RANDOM", "ECHELON_SWEEP"):
            self.environment.pop(key, None)

    def copy(self):
        wanted = source_files(self.root)
        for name in wanted:
            source, target = self.root / name, self.source / name
            data = source.read_bytes()
            if source.name == "CMakeLists.txt" or source.suffix == ".cmake":
                data = data.replace(b" CONFIGURE_DEPENDS", b"") # files change at prepare() alone
            if target.is_file() and target.read_bytes() == data:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            shutil.copymode(source, target)
        kept = set(wanted)
        for path in self.source.rglob("*"):
            name = str(path.relative_to(self.source))
            if not name.startswith("build/") and path.is_file() and name not in kept:
                path.unlink()

    def prepare(self):
        """Copies and configures. Returns what went wrong, or None."""
        self.copy()
        (self.folder / "tmp").mkdir(exist_ok=True)
        command = ["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", "-DECH_TESTS=ON",
                   "-DECH_CUDA=OFF", "-DCMAKE_BUILD_TYPE=Release",
                   "-DCMAKE_C_FLAGS=-w"] # a fault may leave a variable unused
        if shutil.which("ccache"):
            base = run(["ccache", "--get-config", "base_dir"], 60)[1].strip()
            self.environment.setdefault("CCACHE_BASEDIR", base or str(self.folder.parent))
            self.environment.setdefault("CCACHE_NOHASHDIR", "1")
            self.environment["CCACHE_IGNOREOPTIONS"] = "-w" # else it would know no object
            command.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")
        if shutil.which("ld.lld"):
            command.append("-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld -Wl,--threads=1")
        status, output = run([*command, *self.options], BUILD_LIMIT_S, env=self.environment)
        if status != 0:
            return f"cmake failed:\n{output[-3000:]}"
        self.read_tests()
        status, output = run(["ninja", "-C", self.build, "-t", "targets", "all"], 60)
        self.targets = {line.partition(":")[0] for line in output.split("\n") if ":" in line}
        return None

    def read_tests(self):
        """The commands of all tests. ctest itself tells those only of tests that are built."""
        for file in self.build.rglob("CTestTestfile.cmake"):
            for m in TEST_LINE.finditer(file.read_text()):
                if m[1] == "add_test":
                    self.tests[m[2]] = re.findall(r'"([^"]*)"', m[3])
                elif re.search(r'DISABLED "?(ON|TRUE)', m[3]):
                    self.tests[m[2]] = []

    def targets_of(self, test):
        """What must be built for a test: the files of its command that this build makes."""
        found = []
        for word in self.tests[test]:
            path = os.path.relpath(word, self.build) if word.startswith("/") else ""
            if path in self.targets:
                found.append(path)
            elif os.path.isdir(word) and path and not path.startswith(".."): # of a test's helpers
                found += [t for t in self.targets
                          if os.path.dirname(t) == path and t.endswith(".so")]
        return found

    def make(self, tests, keep_going=False):
        """Builds what tests need: what went wrong, or None."""
        return self.ninja(sorted({t for test in tests for t in self.targets_of(test)}), keep_going)

    def make_room(self, room):
        """Builds a room's library: what went wrong, or None."""
        return self.ninja([t for t in self.targets if t == f"libech_{room}.a"])

    def ninja(self, targets, keep_going=False):
        command = ["ninja", "-C", self.build, "-j", str(self.jobs)]
        if keep_going:
            command += ["-k", "0"]
        if not targets:
            return None
        status, output = run([*command, *targets], BUILD_LIMIT_S, env=self.environment)
        if status == 0:
            return None
        errors = [line for line in output.split("\n") if "error" in line or "undefined" in line]
        return "\n".join(errors[:5]) or output[-1000:]

    def test(self, name, variables, limit_s):
        """Runs a test that is built: (passed, failed, skipped or late; seconds; output)."""
        begun = time.monotonic()
        exact = "^" + "".join("\\" + c if c in ".+*?()[]" else c for c in name) + "$"
        status, output = run([*fence(), "ctest", "--test-dir", self.build, "-R", exact,
                              "--output-on-failure",
                              "--no-tests=error", "--timeout", "3600"], limit_s,
                             env={**self.environment, **variables}, preexec_fn=bound_test)
        seconds = time.monotonic() - begun
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        (self.folder / "tmp").mkdir(exist_ok=True)
        if status is None:
            return "late", seconds, output
        if "***Skipped" in output or "Not Run (Disabled)" in output:
            return "skipped", seconds, output
        return ("passed" if status == 0 else "failed"), seconds, output

    def write(self, file, text):
        (self.source / file).write_text(text)
