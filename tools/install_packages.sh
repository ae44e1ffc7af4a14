#!/usr/bin/env bash
# tools/install_packages.sh build|dev [PYTHON]
# Installs the missing system packages of the build (compiler and libraries), or of tests and linters. Does not call apt
# if all are installed.
set -euo pipefail
purpose=$1
python=${2:-python3}

case $purpose in
  build)
    packages=(g++ cmake ninja-build ccache
      libasio-dev nlohmann-json3-dev libfmt-dev libspdlog-dev libssl-dev libxxhash-dev libcli11-dev doctest-dev
      libbenchmark-dev libjpeg-dev libpng-dev libstb-dev libsqlite3-dev) ;;
  dev)
    # From iproute2 on for tests/engines.
    packages=(clang-format clang-tidy clang-16 libclang-rt-16-dev
      iproute2 openmpi-bin openssh-client redis-server slurm-client slurm-wlm-basic-plugins slurmctld slurmd)
    # Its service listens on all addresses, so a developer decides about it.
    [[ ${CI:-} != true ]] || packages+=(openssh-server) ;;
esac

# A custom Python includes venv and headers; the system's has them in packages.
command -v "$python" > /dev/null || packages+=(python3)
"$python" -c 'import ensurepip, venv' 2> /dev/null || packages+=(python3-venv)
"$python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2> /dev/null || packages+=(python3-dev)

if ! command -v apt-get > /dev/null; then
  echo "This system is not Debian or Ubuntu; if the build fails, install the equivalents of: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null) == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

echo "Installing: ${missing[*]}"
as_root=()
[[ $(id -u) -eq 0 ]] || as_root=(sudo)
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
