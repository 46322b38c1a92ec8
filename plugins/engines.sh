# Prints the build tags of the engines whose headers are on this machine.
#   -v        says what is missing and how to get it
#   -install  installs what is missing, on Debian and Ubuntu where it may
set -u

have_gloo() {
	printf '%s\n' '#include <gloo/transport/tcp/pair.h>' | "${CXX:-g++}" -std=c++17 "-I$(dirname "$0")/gloo/missing" -fsyntax-only -x c++ - 2>/dev/null
}

install_gloo() {
	command -v apt-get >/dev/null || return
	as=
	if [ "$(id -u)" -ne 0 ]; then
		sudo -n true 2>/dev/null || return
		as='sudo -n'
	fi
	echo 'installing libgloo-dev, for the tests of the gloo backend' >&2
	log=$(mktemp)
	DEBIAN_FRONTEND=noninteractive
	export DEBIAN_FRONTEND
	{
		$as apt-get install -y -q --no-install-recommends libgloo-dev g++ ||
			{ $as apt-get update -q && $as apt-get install -y -q --no-install-recommends libgloo-dev g++; }
	} >"$log" 2>&1 </dev/null || { tail -n 3 "$log"; echo 'libgloo-dev could not be installed: the tests of the gloo backend are left out'; } >&2
	rm -f "$log"
}

case "${1:-}" in
-install)
	have_gloo || install_gloo
	exit 0
	;;
-v)
	have_gloo || echo 'gloo is left out: its headers are not here (Debian, Ubuntu: apt-get install libgloo-dev g++)'
	exit 0
	;;
esac

if have_gloo; then
	echo gloo
fi
