"""Shared by the parts of a check: the time limit, programs that are run or served, the report."""

import contextlib
import datetime
import glob
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent.parent  # where the bundle was unpacked


def cuda_folders():
    """The folders of CUDA's libraries, from a toolkit or from Python packages."""
    packages = pathlib.Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    found = glob.glob("/usr/local/cuda/lib64") + glob.glob("/usr/local/cuda/lib") + glob.glob(f"{packages}/*/lib")
    return sorted(found)


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def last_json(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def notes_in(text):
    """The lines of a debug log that say which library computes and what is slow: "cuDNN computes ...", "cuDNN has no
    engine for ...", "... which are slow", "... are launched one by one: ..."."""
    lines = re.findall(r"cuDNN computes .*|.*\b(?:is|are) slow\b.*|.*\blaunched one by one: .*", text)
    return sorted({re.sub(r"^.*?\b(?:debug|info|warning|warn)\b\W*", "", line) for line in lines})


class Check:
    def __init__(self, options):
        self.out = pathlib.Path(options.out).resolve()  # programs run elsewhere
        self.out.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.end = time.monotonic() + options.minutes * 60
        self.part_end = self.end
        libraries = [str(HERE / "lib"), *cuda_folders(), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
        self.ours = {"OMP_WAIT_POLICY": "passive", "TANDEM_DATA": str(HERE / "data"),
                     "LD_LIBRARY_PATH": ":".join(filter(None, libraries))}
        if options.tiny:
            self.ours["TANDEM_EMULATED_GPUS"] = "2:1024"
        self.report = {"date": now(), "commit": (HERE / "commit").read_text().strip(), "command": " ".join(sys.argv)}
        self.file = self.out / f"gpu-check-{options.stage or 'all'}.json"
        self.failed = False

    def left(self):
        """Seconds that are left for the current part."""
        return self.part_end - time.monotonic()

    def place(self, command, cwd=HERE):
        """Arguments for Popen. Programs of the machine (PyTorch, nvidia-smi) keep their own library path."""
        words = [str(word) for word in command]
        of_the_bundle = any(word.startswith(f"{HERE}/bin/") for word in words)
        return {"args": words, "cwd": cwd, "env": {**os.environ, **(self.ours if of_the_bundle else {})}}

    def run(self, command, seconds, cwd=HERE):
        """Returns (success, output). At the time limit it kills the command and its child processes."""
        limit = max(1, min(seconds, self.left()))
        process = subprocess.Popen(**self.place(command, cwd), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            printed, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            return False, f"{printed.decode(errors='replace')}\nended after {limit:.0f} s"
        return process.returncode == 0, printed.decode(errors="replace")

    def keep_log(self, name, text):
        """Appends to failures.log; keeps the beginning and the end of a long text."""
        if len(text) > 8000:
            text = f"{text[:4000]}\n[...]\n{text[-4000:]}"
        with (self.out / "failures.log").open("a") as log:
            log.write(f"==== {name}\n{text}\n")

    def save(self, part, results):
        """Writes the report. Parts also save partial results, which survive a crash."""
        self.report[part] = results
        self.file.write_text(json.dumps(self.report, indent=1) + "\n")

    def do(self, name, part, seconds):
        """Runs one part within its time limit. An exception becomes the outcome of the part."""
        self.part_end = min(self.end, time.monotonic() + seconds)
        print(f"==> {name}", flush=True)
        begin = time.monotonic()
        try:
            results = part(self)
        except Exception:  # the other parts continue
            self.keep_log(name, traceback.format_exc())
            self.failed = True
            results = {**self.report.get(name, {}), "outcome": "failed: " + traceback.format_exc().splitlines()[-1]}
        self.part_end = self.end
        self.report.setdefault("seconds", {})[name] = round(time.monotonic() - begin, 1)
        self.save(name, results)


class Served:
    """A program that prints a JSON line when it is ready, and one per line on its standard input."""

    def __init__(self, check, name, command):
        self.check, self.name, self.rest, self.facts, self.notes = check, name, b"", None, []
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(**check.place(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log)

    def line(self, seconds):
        """The next JSON line, or None at the time limit or the end of the output."""
        end = time.monotonic() + seconds
        stream = self.process.stdout.fileno()
        while True:
            while b"\n" in self.rest:
                line, self.rest = self.rest.split(b"\n", 1)
                if line.startswith(b"{"):
                    return json.loads(line)
            left = end - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                return None
            data = os.read(stream, 65536)
            if not data:
                return None
            self.rest += data

    def ready(self, seconds):
        self.facts = self.line(seconds)
        return self.facts is not None

    def ask(self, seconds):
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        except OSError:
            return None
        return self.line(seconds)

    def close(self):
        """Closes its input, so that it exits by itself."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def end(self, failed=False):
        """Ends the program. If it failed, its stderr is added to failures.log."""
        self.close()
        try:
            self.process.wait(0 if failed else max(1, min(10, self.check.left())))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.seek(0)
        text = self.log.read().decode(errors="replace")
        self.notes = notes_in(text)
        if failed:
            self.check.keep_log(self.name, f"{text}\nstatus {self.process.returncode}")
        self.log.close()
