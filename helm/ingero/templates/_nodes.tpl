{{- /* What the cluster says of its nodes, for NOTES and `helm test`. A lookup that is refused ends the
installation: so only lists are asked for that the agents' ClusterRole has, too, which nobody can make who has not
these permissions. Without a cluster (`helm template`) the lists are empty. */}}
{{- define "ingero.mayAsk" -}}
{{- if and .Values.lookups (.Values.rbac).create }}true{{ end -}}
{{- end }}

{{- /* "true" where labels fulfil all requirements: (dict "labels" LABELS "requirements" LIST) */}}
{{- define "ingero.fulfils" -}}
{{- $all := true -}}
{{- range .requirements -}}
{{- $there := hasKey $.labels .key -}}
{{- $value := get $.labels .key -}}
{{- $number := int64 (first (.values | default (list 0))) -}}
{{- $holds := dict
  "In" (and $there (has $value (.values | default list)))
  "NotIn" (not (and $there (has $value (.values | default list))))
  "Exists" $there
  "DoesNotExist" (not $there)
  "Gt" (and $there (gt (int64 $value) $number))
  "Lt" (and $there (lt (int64 $value) $number)) -}}
{{- $all = and $all (get $holds .operator) -}}
{{- end -}}
{{- if $all }}true{{ end -}}
{{- end }}

{{- /* {"total": 12, "matching": 3} of nodes and those that the DaemonSet chooses by labels; total 0: unknown. */}}
{{- define "ingero.nodes" -}}
{{- $nodes := list -}}
{{- if include "ingero.mayAsk" . -}}
{{- $nodes = (lookup "v1" "Node" "" "").items | default list -}}
{{- end -}}
{{- $required := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list (include "ingero.affinity" . | fromYaml) -}}
{{- $selected := list -}}
{{- range $key, $value := .Values.nodeSelector -}}
{{- $selected = append $selected (dict "key" $key "operator" "In" "values" (list $value)) -}}
{{- end -}}
{{- $matching := 0 -}}
{{- range $node := $nodes -}}
{{- $labels := merge (dict "metadata.name" .metadata.name) (.metadata.labels | default dict) -}}
{{- $chosen := not $required -}}
{{- range $required -}}
{{- /* A term matches by all of both lists; one with neither matches nothing. */ -}}
{{- $requirements := concat (.matchExpressions | default list) (.matchFields | default list) -}}
{{- if and $requirements (include "ingero.fulfils" (dict "labels" $labels "requirements" $requirements)) -}}
{{- $chosen = true -}}
{{- end -}}
{{- end -}}
{{- if and $chosen (include "ingero.fulfils" (dict "labels" $labels "requirements" $selected)) -}}
{{- $matching = add1 $matching -}}
{{- end -}}
{{- end -}}
{{- dict "total" (len $nodes) "matching" $matching | toJson -}}
{{- end }}

{{- /* The labels that make a node one of those, for `kubectl label node`; empty where the values say it
otherwise than by gpuNodeLabels. */}}
{{- define "ingero.nodeLabels" -}}
{{- $labels := list -}}
{{- if and .Values.gpuNodesOnly (not (.Values.affinity).nodeAffinity) -}}
{{- $by := dict "gpu-feature-discovery" "nvidia.com/gpu.present=true" "nfd-nvidia" "feature.node.kubernetes.io/pci-10de.present=true" "nfd-amd" "feature.node.kubernetes.io/pci-1002.present=true" -}}
{{- $labels = append $labels (get $by (first .Values.gpuNodeLabels)) -}}
{{- end -}}
{{- range $key, $value := .Values.nodeSelector -}}
{{- /* These are the kubelet's own. */ -}}
{{- if not (has $key (list "kubernetes.io/os" "kubernetes.io/arch" "kubernetes.io/hostname")) -}}
{{- $labels = append $labels (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- end -}}
{{- join " " $labels -}}
{{- end }}

{{- /* The level that the namespace enforces, where it refuses agents. */}}
{{- define "ingero.refusingLevel" -}}
{{- if include "ingero.mayAsk" . -}}
{{- $namespace := include "ingero.namespace" . -}}
{{- range (lookup "v1" "Namespace" "" "").items -}}
{{- $level := get (.metadata.labels | default dict) "pod-security.kubernetes.io/enforce" -}}
{{- if and (eq .metadata.name $namespace) (not (has $level (list "" "privileged"))) }}{{ $level }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Why there is no agent, as lines: (list $ NODES), NODES as ingero.nodes made them. */}}
{{- define "ingero.whyNoAgent" -}}
{{- $nodes := index . 1 -}}
{{- with index . 0 -}}
{{- if and $nodes.total (not $nodes.matching) }}
WARNING: none of {{ int $nodes.total }} nodes has the labels that agents ask for, so none runs. A node with GPUs that nobody labelled:
  {{- if include "ingero.nodeLabels" . }}
  kubectl label node NODE {{ include "ingero.nodeLabels" . }}
  {{- else }}
  kubectl get nodes --show-labels   # beside nodeSelector and affinity of the values
  {{- end }}
{{- end }}
{{- $level := include "ingero.refusingLevel" . }}
{{- if $level }}
WARNING: namespace {{ include "ingero.namespace" . }} enforces pod security level {{ $level }}, which refuses hostPID and hostPath, so no agent runs. Agents need privileged:
  kubectl label namespace {{ include "ingero.namespace" . }} pod-security.kubernetes.io/enforce=privileged --overwrite
{{- end }}
{{- end }}
{{- end }}

{{- /* The same labels as words. */}}
{{- define "ingero.labelsOfNodes" -}}
{{- $words := list -}}
{{- range include "ingero.gpuTerms" . | fromYamlArray -}}
{{- range .matchExpressions -}}
{{- $words = append $words (printf "%s%s" .key (eq .operator "In" | ternary (printf "=%s" (join "," .values)) "")) -}}
{{- end -}}
{{- end -}}
{{- join " or " $words -}}
{{- end }}
