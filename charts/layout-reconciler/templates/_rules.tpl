{{/* What the operator does with the objects of a watched namespace, and nothing besides. */}}
{{- define "layout.operatorRules" -}}
- apiGroups: [layout.lakehouse.dev]
  resources: [tablelayoutpolicies, icebergcatalogs]
  verbs: [get, list, watch]
- apiGroups: [layout.lakehouse.dev]
  resources: [tablelayouts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [layout.lakehouse.dev]
  resources: [tablelayoutpolicies/status, icebergcatalogs/status, tablelayouts/status]
  verbs: [update]
# Owner references that block deletion need it where that admission check is on.
- apiGroups: [layout.lakehouse.dev]
  resources: [tablelayoutpolicies/finalizers, tablelayouts/finalizers]
  verbs: [update]
# The credentials of the catalogs, read by the name that the catalog gives.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
# Jobs are created and deleted, never edited.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
# Whether a pod of a table still lives, and the driver's last words.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* What a Spark driver in client mode calls for its executors; settings keep it from all else. */}}
{{- define "layout.driverRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, deletecollection]
{{- end -}}
