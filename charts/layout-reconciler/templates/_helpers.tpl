{{- define "layout.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "layout.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "layout.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "layout.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "layout.selector" -}}
app.kubernetes.io/name: {{ include "layout.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "layout.labels" -}}
{{ include "layout.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "layout.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "layout.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "layout.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Namespaces whose objects the operator acts on, as JSON; empty when it watches all. */}}
{{- define "layout.watched" -}}
{{- if and .Values.watch.clusterWide .Values.watch.namespaces -}}
{{- fail "watch.clusterWide watches every namespace: leave watch.namespaces empty" -}}
{{- else if .Values.watch.clusterWide -}}
[]
{{- else -}}
{{- default (list .Release.Namespace) .Values.watch.namespaces | uniq | sortAlpha | toJson -}}
{{- end -}}
{{- end -}}

{{/* Namespaces that get the service accounts of the Spark pods, as JSON. */}}
{{- define "layout.jobNamespaces" -}}
{{- if not .Values.jobs.create -}}
[]
{{- else if .Values.watch.clusterWide -}}
{{- .Values.jobs.namespaces | uniq | sortAlpha | toJson -}}
{{- else if .Values.jobs.namespaces -}}
{{- fail "jobs.namespaces goes with watch.clusterWide: otherwise the watched namespaces get them" -}}
{{- else -}}
{{- include "layout.watched" . -}}
{{- end -}}
{{- end -}}
