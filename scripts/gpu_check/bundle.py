"""Builds the programs that are checked, and packs them with the libraries that they need."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

# The parts of the build that are packed. ON_GPU: the tests of these folders run with a GPU as the default device, as
# they do on the fake of CUDA (tests/cuda/FakeCuda.cmake); {folder: filter}.
# Left out: tests of threads, and those whose many processes each start CUDA.
FAST = "-*Slow.*:*Hosts*:*AnyTeam:*AnyNumberOfThreads:*AKillLeavesTheLastOneWhole:*OnAnyReplicas:*BatchesOfFewExamples*"
ON_GPU = {"ops": FAST, "autodiff": FAST, "runtime": FAST, "function": FAST, "graph": FAST, "nn": FAST, "train": FAST,
          "distribute": f"{FAST}:MultiWorker*", "data": "PrefetchToDevice*:-*.RejectsInvalid*:*.EqualsPrefetchOnACpu"}
CONFORMANCE = ["device", "comm"]
PROGRAMS = ["01_devices", "02_session_towers", "03_memory", "04_fit_mirrored", "05_custom_loop", "08_data_parallel",
            "11_amp"]
ON_GPUS = ["04_fit_mirrored", "05_custom_loop"]  # name CPUs; examples/CMakeLists.txt builds a version of each for GPUs
BENCHMARKS = ["train_step", "ceilings", "memory_options"]
MODULES = ["cuda", "nccl"]
MNIST = ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
         "t10k-labels-idx1-ubyte.gz"]
# Libraries that every Linux has, or that come with the driver or with CUDA.
OF_THE_SYSTEM = re.compile(r"^(ld-linux|linux-vdso|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|"
                           r"libcuda|libcudart|libcublas|libcublasLt|libcudnn\w*|libnccl)[.-]")


def must(command, **options):
    result = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, **options)
    if result.returncode != 0:
        last = "\n".join(result.stdout.splitlines()[-40:])
        sys.exit(f"gpu-check: {' '.join(map(str, command))} failed:\n{last}")
    return result.stdout


def needed_libraries(file):
    """The shared libraries that an ELF file names."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", must(["readelf", "-d", file]))


def where_libraries_are(file):
    """name -> path, of all that the file and its libraries need here."""
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", must(["ldd", file]), re.MULTILINE))


def with_libraries(files, lib):
    """Copies the libraries that the files need and that systems may lack into `lib`."""
    to_look_at, seen = list(files), set()
    while to_look_at:
        file = to_look_at.pop()
        places = where_libraries_are(file)
        for name in needed_libraries(file):
            if name in seen or OF_THE_SYSTEM.match(name):
                continue
            seen.add(name)
            if name not in places:
                sys.exit(f"gpu-check: {file} needs {name}, which is not here")
            to_look_at.append(pathlib.Path(places[name]))
            if not (lib / name).exists():
                shutil.copy(places[name], lib / name)


def build(root, folder, architectures):
    """Builds in `folder`. Returns (programs, modules), each as (path, name in the bundle)."""
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    environment = {**os.environ, "CCACHE_BASEDIR": str(root), "CCACHE_NOHASHDIR": "1"}
    must(["cmake", "--preset", "release", "-B", folder, "-DTANDEM_CUDA=ON", f"-DCMAKE_CUDA_ARCHITECTURES={architectures}",
          "-DTANDEM_BUILD_BENCHMARKS=ON", "-DCMAKE_CUDA_FLAGS=-lineinfo", *launcher], cwd=root, env=environment)
    tests = [f"{name}_test" for name in [*ON_GPU, *CONFORMANCE]]
    examples = [name for name in PROGRAMS if (root / f"examples/{name}.cpp").exists()]
    examples += [f"{name}_on_gpus" for name in ON_GPUS]
    targets = [*(f"tandem_{name}" for name in MODULES), *tests, *(f"example_{name}" for name in examples), *BENCHMARKS,
               "tandem_command"]
    must(["cmake", "--build", folder, "--target", *targets], cwd=root, env=environment)
    programs = [*((folder / "tests" / name, name) for name in tests),
                *((folder / "examples" / name, f"example_{name}") for name in examples),
                *((folder / "benchmarks" / name, name) for name in BENCHMARKS), (folder / "tools/tandem", "tandem")]
    return programs, [(folder / f"src/libtandem_{name}.so", f"libtandem_{name}.so") for name in MODULES]


def fill(top, root, programs, modules):
    """Fills the folder that is packed."""
    for name in ("lib", "bin", "data/mnist"):
        (top / name).mkdir(parents=True)
    for source, name in programs:
        shutil.copy(source, top / "bin" / name)
    for source, name in modules:
        shutil.copy(source, top / "lib" / name)
    with_libraries([*(top / "bin").iterdir(), *(top / "lib").iterdir()], top / "lib")
    for file in [*(top / "bin").iterdir(), *(top / "lib").iterdir()]:
        must(["strip", "--strip-unneeded", file])
    for name in ("torch_step.py", "torch_ceilings.py"):
        shutil.copy(root / "benchmarks/peers" / name, top)
    shutil.copy(root / "scripts/gpu-check", top)
    shutil.copytree(root / "scripts/gpu_check", top / "gpu_check", ignore=shutil.ignore_patterns("__pycache__"))
    data = pathlib.Path(os.environ.get("TANDEM_DATA", root.parent / "shared/data"))
    for name in MNIST:
        if (data / "mnist" / name).exists():
            shutil.copy(data / "mnist" / name, top / "data/mnist")
        else:
            print(f"gpu-check: without {data / 'mnist' / name}, which the training needs: set TANDEM_DATA",
                  file=sys.stderr)


def bundle(options, root):
    folder = pathlib.Path(options.build or root / "build/gpu-check").resolve()
    programs, modules = build(root, folder, options.architectures)
    with tempfile.TemporaryDirectory() as holder:
        top = pathlib.Path(holder) / "gpu-check"
        fill(top, root, programs, modules)
        commit = must(["git", "describe", "--always", "--dirty"], cwd=root).strip()
        (top / "commit").write_text(commit + "\n")
        output = pathlib.Path(options.output or root / "build/gpu-check.tar.xz")
        with tarfile.open(output, "w:xz") as tar:
            for file in sorted(top.rglob("*")):
                tar.add(file, arcname=file.relative_to(top), recursive=False)
    print(f"{output}: {output.stat().st_size / 2**20:.1f} MiB, of commit {commit}")
    return 0
