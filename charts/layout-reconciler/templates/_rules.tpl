{{/* All rights of the operator in a watched namespace. */}}
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
# Needed to set owner references that block deletion, if the cluster checks this right.
- apiGroups: [layout.lakehouse.dev]
  resources: [tablelayoutpolicies/finalizers, tablelayouts/finalizers]
  verbs: [update]
# The credentials of catalogs, read by the name in the catalog's spec.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
# Jobs are created and deleted, never edited.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
# Whether a pod of a table still runs, and the driver's termination message.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* Rights of a Spark driver in client mode; its settings turn off all other calls. */}}
{{- define "layout.driverRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, deletecollection]
{{- end -}}
