{{- /* What a login node does with what was sent, in the target's folder. All is compared with its sums before it is used. */ -}}
fail() { echo "failed $1"; exit 1; }
{{- if .Lacking}}
(cd {{sh .Part}} && sha256sum -c --quiet sums >&2) || fail sent
{{sh .Part}}/drun version >/dev/null || fail start
mv -T {{sh .Part .Installed}} 2>/dev/null || { [ -x {{sh .Program}} ] && rm -rf {{sh .Part}}; } || exit
ln -sfn {{sh .Program}} bin/drun
{{- end}}
cd {{sh .Folder}} || exit
{{- if not .Here}}
mkdir -p files && { [ ! -s sums ] || sha256sum -c --quiet sums >&2; } || fail sent
{{- if .Target.Get "drun"}}
v=$({{sh .Program}} version --json | tr -d ' \n') && [ -n "$v" ] || fail start
case $v in *{{sh (print "\"version\":\"" .Version "\"")}}*) ;; *) echo "version $v"; fail version ;; esac
{{- end}}
{{- with .Info.Name}}
[ ! -e {{sh (print $.RunHome "/history.db")}} ] || case $({{sh $.Program}} runs --home {{sh $.RunHome}} --all --json --columns id --where {{sh (print "name == " (json .))}}) in *'"id"'*) fail name ;; esac
{{- end}}
{{- end}}
{{template "data" .}}
sbatch --parsable script || fail job
