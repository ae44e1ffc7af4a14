#!/usr/bin/env bash
# tools/horovod_wheel.sh PYTHON             builds a Horovod wheel for the torch and TensorFlow of this interpreter
# tools/horovod_wheel.sh PYTHON --if-built  only looks for it
# Prints the path of the wheel. It is bound to the versions of torch and TensorFlow, so it is built from source: 7 minutes
# on 2 cores. It is kept for the machine in ${XDG_CACHE_HOME:-~/.cache}/trireme/wheels, and two builds never run at the
# same time.
set -euo pipefail
python=$1
only_if_built=${2:-}
version=0.28.1
# Increase it when the way of building changes.
recipe=1
jobs=${JOBS:-$(nproc)}

key=$("$python" - << 'END'
import sys, sysconfig
from importlib.metadata import PackageNotFoundError, version

parts = []
for package, distributions in (("torch", ["torch"]), ("tensorflow", ["tensorflow", "tensorflow-cpu"])):
    for distribution in distributions:
        try:
            parts.append(f"{package}-{version(distribution)}")
            break
        except PackageNotFoundError:
            pass
    else:
        sys.exit(f"Horovod is built for {package}, which {sys.executable} does not have")
print("_".join([*parts, sys.implementation.cache_tag, sysconfig.get_platform()]))
END
)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/trireme/wheels/horovod-${version}_$key.$recipe
find_wheel() { find "$folder" -maxdepth 1 -name 'horovod-*.whl' -print -quit 2> /dev/null; }
if [[ $only_if_built ]]; then
  find_wheel || true
  exit 0
fi
for tool in cmake g++; do
  command -v "$tool" > /dev/null || { echo "building Horovod needs $tool: install it, or run make install" >&2; exit 1; }
done

mkdir -p "$folder"
exec 8> "$folder/lock"
flock 8
wheel=$(find_wheel)
if [[ -n $wheel ]]; then
  echo "$wheel"
  exit 0
fi

build=$(mktemp -d "${TMPDIR:-/tmp}/horovod.XXXXXX")
trap 'rm -rf "$build"' EXIT

# torch and TensorFlow need C++17, and Horovod's CMakeLists.txt insists on C++14. One file, which is only for GPUs, needs
# headers that TensorFlow's wheel lacks: it is replaced by an empty one.
touch "$build/empty.cc"
cat > "$build/c++" << END
#!/usr/bin/env bash
arguments=()
for argument in "\$@"; do
  case \$argument in
    -std=*) ;;
    *xla_mpi_ops.cc) arguments+=("$build/empty.cc") ;;
    *) arguments+=("\$argument") ;;
  esac
done
exec $(command -v ccache || true) g++ -std=c++17 -w "\${arguments[@]}"
END
chmod +x "$build/c++"

echo "building a Horovod wheel, which takes about 7 minutes on 2 cores; the log is $folder/build.log" >&2
if ! env CXX="$build/c++" MAKEFLAGS="-j$jobs" HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MXNET=1 \
  HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_TENSORFLOW=1 TMPDIR="$build" PATH="$(dirname "$python"):$PATH" \
  "$python" -m pip wheel --disable-pip-version-check --no-deps --no-build-isolation --no-binary horovod \
  --wheel-dir "$build/wheel" "horovod==$version" > "$folder/build.log" 2>&1 8>&-; then
  tail -n 30 "$folder/build.log" >&2
  echo "Horovod was not built; the log is $folder/build.log" >&2
  exit 1
fi
# Renamed when it is complete.
name=$(basename "$build"/wheel/horovod-*.whl)
mv "$build/wheel/$name" "$folder/.$name"
mv "$folder/.$name" "$folder/$name"
echo "$folder/$name"
