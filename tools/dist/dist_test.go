package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A program of this machine's compiler is refused: it needs a newer C library than the packages may.
func TestCheckSymbols(t *testing.T) {
	if err := checkSymbols("/bin/bash"); err == nil || !strings.Contains(err.Error(), "/bin/bash needs ") {
		t.Errorf("bash needs its own libraries, and a new glibc: %v", err)
	}
}

// Each package is installed in a Debian with neither Go nor a compiler, for another processor under emulation, and does what
// `make demo` does, with the bits of the drun in bin. `make dist-test` runs it after `make dist`.
func TestPackages(t *testing.T) {
	out := os.Getenv("DRUN_TEST_DIST")
	if out == "" {
		t.Skip("make dist-test")
	}
	for _, command := range []string{"mmdebstrap", "unshare", "chroot", "ip"} {
		if _, err := exec.LookPath(command); err != nil || os.Getuid() != 0 {
			t.Skip("takes root, and apt-get install mmdebstrap iproute2 qemu-user-static")
		}
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = out
	if text, err := sums.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	want, pack := demo(t, filepath.Join(out, "../drun"))
	t.Run("opencl", func(t *testing.T) { // which is loaded when it is asked for
		if _, err := exec.LookPath("clinfo"); err != nil {
			t.Skip("no OpenCL device: apt-get install pocl-opencl-icd ocl-icd-libopencl1 clinfo")
		}
		if got, _ := demo(t, filepath.Join(out, runtime.GOARCH, "bin/drun"), "--device", "opencl"); got != want {
			t.Errorf("the bits are %s, and those of bin/drun %s", got, want)
		}
	})
	for arch, machine := range machines {
		t.Run(arch, func(t *testing.T) {
			debs, err := filepath.Glob(filepath.Join(out, "drun_*_"+arch+".deb"))
			if err != nil || len(debs) != 1 {
				t.Skipf("make dist has made %d packages for it: %v", len(debs), err)
			}
			root := debian(t, filepath.Join(out, arch), arch)
			if err := os.MkdirAll(filepath.Join(root, "work"), 0o755); err != nil {
				t.Fatal(err)
			}
			for file, content := range map[string]string{"outside.sh": outside, "work/inside.sh": inside, "work/digits.zip": string(pack)} {
				if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			flags := []string{"--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc"}
			if arch != runtime.GOARCH {
				flags = append(flags, "--user", "--map-root-user") // in which emulation can be had without the rest of the machine
			}
			cmd := exec.Command("unshare", append(flags, "sh", filepath.Join(root, "outside.sh"), root, out, arch, machine)...)
			var text bytes.Buffer
			cmd.Stdout, cmd.Stderr = &text, &text
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v:\n%s", err, text.String())
			}
			for _, kind := range []string{"archive", "deb", "wheel"} {
				for _, backend := range []string{"shm", "gloo"} {
					got := result(t, filepath.Join(root, "work", kind+"-"+backend))
					if got != want {
						t.Errorf("%s over %s: the bits of the weights and metrics are %s, and those of bin/drun %s", kind, backend, got, want)
					}
				}
			}
			t.Log(text.String())
		})
	}
}

// demo is what the run of `make demo` gives with a program, and its pack.
func demo(t *testing.T, drun string, flags ...string) (bits string, pack []byte) {
	t.Helper()
	base := filepath.Join(t.TempDir(), "demo")
	cmd := exec.Command("sh", append([]string{"-ec", `drun=$1; base=$2; shift 2; export DRUN_HOME=$base.home
"$drun" run ../../examples/digits.star -n 2 "$@"; "$drun" metrics last --csv | cut -d, -f1-4 >"$base.csv"
"$drun" checkpoints export last "$base.safetensors"; "$drun" pack last -o "$base.zip"`, "sh", drun, base}, flags...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	pack, err := os.ReadFile(base + ".zip")
	if err != nil {
		t.Fatal(err)
	}
	return result(t, base), pack
}

// result digests what a run has left.
func result(t *testing.T, base string) string {
	t.Helper()
	h := sha256.New()
	for _, kind := range []string{".csv", ".safetensors"} {
		content, err := os.ReadFile(base + kind)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// debian unpacks a Debian, without the scripts that would configure it if this machine cannot run them.
func debian(t *testing.T, folder, arch string) string {
	t.Helper()
	root := filepath.Join(folder, "debian")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/python3")); err == nil {
		return root
	}
	variant, packages := "apt", "python3-pip"
	if arch != runtime.GOARCH {
		variant, packages = "extract", "python3-pip,python3,dash,coreutils,sed,grep,tar,gzip,dpkg,libc-bin,diffutils,findutils,base-files"
	}
	if text, err := exec.Command("mmdebstrap", "--mode=root", "--variant="+variant, "--architectures="+arch, "--include="+packages,
		"--aptopt=APT::Install-Recommends false", "bookworm", root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if arch != runtime.GOARCH {
		if err := os.Symlink("dash", filepath.Join(root, "bin/sh")); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	return root
}

// outside prepares the namespaces, with root, packages, processor and machine as arguments.
const outside = `set -e
root=$1
ip link set lo up
if [ "$(uname -m)" != "$4" ]; then
	mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
	# The head of a 64-bit program for ARM, and which of its bits count.
	printf %s ':arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F' >/proc/sys/fs/binfmt_misc/register
fi
mkdir -p "$root/proc" "$root/dev" "$root/packages" "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount --bind "$2" "$root/packages"
exec chroot "$root" /bin/sh -e /work/inside.sh "$3" "$4"
`

// inside installs each package and uses it.
const inside = `cd /work
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
for tool in go gcc cc clang make; do ! command -v $tool || exit 1; done
try() { # KIND DRUN PREFIX
	for backend in shm gloo; do
		export DRUN_HOME=/work/$1-$backend.home
		rm -rf "$DRUN_HOME" $1-$backend.*
		$2 run $3/share/drun/examples/digits.star -n 2 --backend $backend
		$2 show last >/dev/null
		$2 metrics last --csv | cut -d, -f1-4 >$1-$backend.csv
		$2 checkpoints export last $1-$backend.safetensors
	done
	$2 verify digits.zip --segments 2 --data $3/share/drun/examples
	$2 submit local $3/share/drun/examples/hello.star -n 2 --name queued
	$2 jobs wait --all
	rm -rf team
	export DRUN_TOKEN=$($2 serve users add ada --role write --home team)
	$2 serve --home team --listen 127.0.0.1:7878 &
	server=$!
	timeout 120 sh -c 'until "$1" push http://127.0.0.1:7878 queued; do sleep 0.2; done' sh $2
	kill $server
	wait $server || true
	$2 runs --home team --columns "name, status, owner" | grep "queued *done *ada"
	echo continue | $2 debug $3/share/drun/examples/hello.star -n 2
	request='{"seq":1,"type":"request","command":"initialize","arguments":{"adapterID":"drun"}}'
	printf 'Content-Length: %s\r\n\r\n%s' ${#request} "$request" | $2 dap | grep -a -o supportsStepBack
	! $2 devices 2>devices.txt
	grep "OpenCL is missing" devices.txt
	$2 version
	$2 backends
}
rm -rf archive
mkdir archive
tar -xzf /packages/drun-*-linux-$1.tar.gz -C archive --strip-components 1
try archive archive/bin/drun archive
if [ -s /var/lib/dpkg/info/libc6:$1.list ]; then force=; else force=--force-depends; touch /var/lib/dpkg/status; fi
dpkg -i $force /packages/drun_*_$1.deb
try deb drun /usr
dpkg -r $force drun
hash -r
! command -v drun || exit 1
python3 -m pip install --quiet --no-index --break-system-packages --root-user-action=ignore /packages/drun-*_$2.whl
try wheel drun /usr/local
DRUN_HOME=/work/python.home python3 -c 'import drun; print(drun.run("/usr/local/share/drun/examples/digits.star", n=2).wait()["status"], drun.program())'
python3 -m pip uninstall --quiet --yes --break-system-packages --root-user-action=ignore drun
hash -r
! command -v drun || exit 1
`
