{{- /* Compares data with its sums. */ -}}
{{define "data" -}}
{{- if .Sums}}(cd {{sh .DataFolder}} && sha256sum -c --quiet --strict {{sh (print .Folder "/data.sums")}} >&2) || { echo failed data; exit 1; }{{end}}
{{- end}}
{{- template "data" . -}}
