{{/* The operator's settings: one variable each, see docs/operations/settings.md. */}}
{{- define "layout.environment" -}}
- {name: LAYOUTCTL_OPERATOR_NAMESPACES, value: {{ include "layout.watched" . | fromJsonArray | join "," | quote }}}
- {name: LAYOUTCTL_OPERATOR_CLUSTER_WIDE, value: {{ .Values.watch.clusterWide | quote }}}
- name: LAYOUTCTL_OPERATOR_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: LAYOUTCTL_OPERATOR_IDENTITY
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: LAYOUTCTL_OPERATOR_LEASE, value: {{ include "layout.fullname" . | quote }}}
- {name: LAYOUTCTL_OPERATOR_MAX_REWRITE_BYTES, value: {{ .Values.caps.rewriteBytesPerDay | quote }}}
- {name: LAYOUTCTL_OPERATOR_MAX_JOBS, value: {{ .Values.caps.concurrentJobs | quote }}}
- {name: LAYOUTCTL_OPERATOR_KEPT_SHARE, value: {{ .Values.caps.keptSharePercent | quote }}}
- {name: LAYOUTCTL_OPERATOR_TURN, value: {{ .Values.caps.turn | quote }}}
- {name: LAYOUTCTL_OPERATOR_AMBIENT_CREDENTIALS, value: {{ .Values.ambientCredentials | quote }}}
{{- with .Values.allowedNetworks }}
- {name: LAYOUTCTL_OPERATOR_ALLOWED_NETWORKS, value: {{ join "," . | quote }}}
{{- end }}
- {name: LAYOUTCTL_OPERATOR_DRIVER_SERVICE_ACCOUNT, value: {{ .Values.jobs.driverServiceAccount.name | quote }}}
- {name: LAYOUTCTL_OPERATOR_EXECUTOR_SERVICE_ACCOUNT, value: {{ .Values.jobs.executorServiceAccount.name | quote }}}
{{- with .Values.jobs.image }}
- {name: LAYOUTCTL_OPERATOR_IMAGE, value: {{ . | quote }}}
{{- end }}
{{- with .Values.jobs.localImage }}
- {name: LAYOUTCTL_OPERATOR_LOCAL_IMAGE, value: {{ . | quote }}}
{{- end }}
{{- if .Values.events.enabled }}
- {name: LAYOUTCTL_OPERATOR_EVENTS_PORT, value: "8082"}
- {name: LAYOUTCTL_OPERATOR_EVENTS_TOKEN_FILE, value: /var/run/layout-events/token}
- {name: LAYOUTCTL_OPERATOR_EVENTS_KEY_FILE, value: /var/run/layout-events/key}
{{- end }}
- {name: LAYOUTCTL_OPERATOR_PER_TABLE_METRICS, value: {{ .Values.metrics.perTable | quote }}}
- {name: LAYOUTCTL_OPERATOR_LOG_LEVEL, value: {{ .Values.log.level | quote }}}
- {name: LAYOUTCTL_CACHE, value: /work/cache}
- {name: LAYOUTCTL_STATE, value: /work/state}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
