{{- /* What drun submit asks a login node first. */ -}}
umask 077
fail() { echo "failed $1"; exit 1; }
{{- if not .Here}}
cd
f={{sh (.Target.Get "folder")}}
case $f in '~/'*) f=$HOME/${f#'~/'} ;; '~') f=$HOME ;; esac
mkdir -p "$f/jobs" "$f/bin" && cd "$f" && [ -w jobs ] || fail folder
echo "folder $f"
echo "arch $(uname -m)"
[ ! -x {{sh .Program}} ] || echo have
{{- end}}
command -v sbatch squeue scancel scontrol >/dev/null || fail scheduler
{{- range .Data}}
[ -d {{sh .}} ] || echo missing {{sh .}}
{{- end}}
:
