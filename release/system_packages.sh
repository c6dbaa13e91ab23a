#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that set-up or tests need and that are missing, where this user may: as root,
# or with a sudo that asks for no password. Says what it installs, and what stays missing with the tests that skip.
#
#   release/system_packages.sh setup|test [STAMP]
#
# Exits with 3 if something stays missing. STAMP: a file that is left then, so that the next call does not try again.
set -uo pipefail
group=${1:?usage: release/system_packages.sh setup|test [STAMP]}
stamp=${2:-}

# PROGRAM_OR_FILES | PACKAGES | TESTS_THAT_NEED_IT
needs_of() {
  case $1 in
    setup) echo "$(command -v "${PYTHON:-python3}" || echo python3)-venv|python3-venv|all of it" ;;
    test) cat <<'NEEDS' ;;
go|golang-go|the verifier in Go
/usr/share/gocode/src/golang.org/x/mod/sumdb|golang-golang-x-mod-dev|the verifier in Go
/usr/share/gocode/src/filippo.io/edwards25519|golang-filippo-edwards25519-dev|the quicker build of the verifier in Go
/usr/lib/postgresql/*/bin/initdb|postgresql|sessions in Postgres
sshd|openssh-server|pods
chromium|chromium|pages in a browser
cc|gcc|slow disks
openssl|openssl|an export read without Peergate
xxd|xxd|an export read without Peergate
NEEDS
    *) echo "usage: release/system_packages.sh setup|test [STAMP]" >&2; exit 2 ;;
  esac
}

is_there() {
  case $1 in
    *-venv) "${1%-venv}" -c 'import ensurepip, venv' 2>/dev/null ;;
    */*) compgen -G "$1" >/dev/null && [ -x "$(compgen -G "$1" | head -1)" ] ;;
    *) local path; path=$(PATH="$PATH:/usr/sbin:/sbin" command -v "$1") && [ -x "$path" ] ;;
  esac
}

missing() { needs_of "$group" | while IFS='|' read -r what packages tests; do is_there "$what" || echo "$packages|$tests"; done; }

absent=$(missing)
[ -z "$absent" ] && { [ -z "$stamp" ] || rm -f "$stamp"; exit 0; }

if [ "$(id -u)" = 0 ]; then as_root=(); may=yes
elif sudo -n true 2>/dev/null; then as_root=(sudo -n); may=yes
else may=no; fi
command -v apt-get >/dev/null || may=no
[ -n "$stamp" ] && [ -e "$stamp" ] && may=tried

if [ "$may" = yes ]; then
  packages=$(cut -d'|' -f1 <<<"$absent" | tr '\n' ' ')
  echo "installing with apt-get: $packages"
  # A server that is installed for tests must not begin to listen: no service is started, now or when the machine boots.
  policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null && "${as_root[@]}" chmod 755 "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
  fi
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" timeout 120 apt-get update -qq || echo "apt-get update failed" >&2
  # One after the other: where one cannot be had, the others still are.
  for package in $packages; do
    "${as_root[@]}" timeout 300 apt-get install -y -qq --no-install-recommends "$package" >/dev/null || echo "apt-get install $package failed" >&2
    if [ -d /run/systemd/system ]; then
      case $package in
        openssh-server) "${as_root[@]}" systemctl disable --now ssh ssh.socket ;;
        postgresql) "${as_root[@]}" systemctl disable --now postgresql ;;
      esac 2>/dev/null
    fi
  done
  absent=$(missing)
fi

[ -z "$absent" ] && exit 0
while IFS='|' read -r packages tests; do
  echo "NOT INSTALLED: $packages; tests that are skipped: $tests. On Debian and Ubuntu: sudo apt-get install $packages" >&2
done <<<"$absent"
if [ -n "$stamp" ]; then
  : >"$stamp" 2>/dev/null
  [ "$may" = tried ] && echo "not tried again while $stamp exists" >&2
fi
exit 3
