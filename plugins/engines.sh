# Prints the build tags of the engines whose headers are on this machine, with commas.
#   -v        says what is missing and how to get it
#   -install  installs what is missing, on Debian and Ubuntu where it may
set -u

have_gloo() {
	printf '%s\n' '#include <gloo/transport/tcp/pair.h>' | "${CXX:-g++}" -std=c++17 "-I$(dirname "$0")/gloo/missing" -fsyntax-only -x c++ - 2>/dev/null
}

have_mpi() {
	command -v pkg-config >/dev/null && pkg-config --exists ompi-c
}

# install NAME PACKAGE…: for the tests of that backend
install() {
	command -v apt-get >/dev/null || return
	name=$1
	shift
	as=
	if [ "$(id -u)" -ne 0 ]; then
		sudo -n true 2>/dev/null || return
		as='sudo -n'
	fi
	echo "installing $1, for the tests of the $name backend" >&2
	log=$(mktemp)
	DEBIAN_FRONTEND=noninteractive
	export DEBIAN_FRONTEND
	{
		$as apt-get install -y -q --no-install-recommends "$@" ||
			{ $as apt-get update -q && $as apt-get install -y -q --no-install-recommends "$@"; }
	} >"$log" 2>&1 </dev/null || { tail -n 3 "$log"; echo "$1 could not be installed: the tests of the $name backend are left out"; } >&2
	rm -f "$log"
}

case "${1:-}" in
-install)
	have_gloo || install gloo libgloo-dev g++
	have_mpi || install mpi libopenmpi-dev openmpi-bin pkgconf
	exit 0
	;;
-v)
	have_gloo || echo 'gloo is left out: its headers are not here (Debian, Ubuntu: apt-get install libgloo-dev g++)'
	have_mpi || echo 'mpi is left out: Open MPI is not here (Debian, Ubuntu: apt-get install libopenmpi-dev openmpi-bin pkgconf)'
	exit 0
	;;
esac

tags=
if have_gloo; then
	tags=gloo
fi
if have_mpi; then
	tags="${tags:+$tags,}mpi"
fi
echo "$tags"
