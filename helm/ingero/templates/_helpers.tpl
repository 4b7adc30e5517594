{{- define "ingero.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ingero.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "ingero.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "ingero.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ingero.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{- /* Cluster-scoped names carry the namespace unless it is that of the default installation. */}}
{{- define "ingero.clusterName" -}}
{{- if eq (include "ingero.namespace" .) (include "ingero.fullname" .) -}}
{{- include "ingero.fullname" . }}
{{- else -}}
{{- printf "%s-%s" (include "ingero.fullname" .) (include "ingero.namespace" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ingero.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ingero.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ingero.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "ingero.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ingero.serviceAccountName" -}}
{{- if (.Values.serviceAccount).create -}}
{{- default (include "ingero.fullname" .) (.Values.serviceAccount).name }}
{{- else -}}
{{- default "default" (.Values.serviceAccount).name }}
{{- end }}
{{- end }}

{{- /* A registry of all charts takes the place of the repository's own, which has a dot, a port, or is
localhost: as container engines tell the two apart. */}}
{{- define "ingero.repository" -}}
{{- $repository := .Values.image.repository -}}
{{- with (.Values.global).imageRegistry -}}
{{- $parts := splitList "/" $repository -}}
{{- if and (rest $parts) (regexMatch "[.:]|^localhost$" (first $parts)) -}}
{{- $repository = join "/" (rest $parts) -}}
{{- end -}}
{{- $repository = printf "%s/%s" . $repository -}}
{{- end -}}
{{- $repository -}}
{{- end }}

{{- define "ingero.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" (include "ingero.repository" $) .digest }}
{{- else -}}
{{- printf "%s:%s" (include "ingero.repository" $) (.tag | default $.Chart.AppVersion) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The settings of the ConfigMap: .Values.config, and the port and the folder of recordings where they are
not the agent's defaults. */}}
{{- define "ingero.config" -}}
{{- $config := deepCopy (.Values.config | default dict) }}
{{- $port := int .Values.port }}
{{- if hasKey $config "listen_address" }}
{{- if not (hasSuffix (printf ":%d" $port) $config.listen_address) }}
{{- fail (printf "config.listen_address is %s, but port is %d: probes and monitors would not find the agent; set both" $config.listen_address $port) }}
{{- end }}
{{- else if ne $port 9090 }}
{{- $_ := set $config "listen_address" (printf ":%d" $port) }}
{{- end }}
{{- $recordings := deepCopy (default (dict) $config.recordings) }}
{{- $hostPath := (.Values.recordings).hostPath }}
{{- if not (.Values.recordings).enabled }}
{{- if not (has (toString (default "0" $recordings.budget)) (list "0")) }}
{{- fail (printf "config.recordings.budget is %v, but recordings.enabled is false: there is no folder to write to" $recordings.budget) }}
{{- end }}
{{- $_ := set $recordings "budget" "0" }}
{{- else if hasKey $recordings "directory" }}
{{- if not (hasPrefix (printf "%s/" $hostPath) (printf "%s/" $recordings.directory)) }}
{{- fail (printf "config.recordings.directory is %s, which is not in recordings.hostPath %s: nothing could be written there" $recordings.directory $hostPath) }}
{{- end }}
{{- else if ne $hostPath "/var/lib/ingero/recordings" }}
{{- $_ := set $recordings "directory" $hostPath }}
{{- end }}
{{- if $recordings }}
{{- $_ := set $config "recordings" $recordings }}
{{- end }}
{{- if $config }}
{{- toYaml $config }}
{{- end }}
{{- end }}

{{- /* Labels of nodes with GPUs, by who sets them. NFD names devices by class and vendor, or by vendor alone
where the GPU operator set it up; AMD's accelerators are of three classes. */}}
{{- define "ingero.gpuTerms" -}}
{{- $devices := dict
  "nfd-nvidia" (list "pci-10de" "pci-0300_10de" "pci-0302_10de")
  "nfd-amd" (list "pci-1002" "pci-0302_1002" "pci-0380_1002" "pci-1200_1002") }}
{{- range .Values.gpuNodeLabels }}
{{- if eq . "gpu-feature-discovery" }}
- matchExpressions: [{key: nvidia.com/gpu.present, operator: In, values: ["true"]}]
- matchExpressions: [{key: nvidia.com/gpu.count, operator: Exists}]
{{- end }}
{{- range get $devices . | default list }}
- matchExpressions: [{key: feature.node.kubernetes.io/{{ . }}.present, operator: In, values: ["true"]}]
{{- end }}
{{- end }}
{{- end }}

{{- define "ingero.affinity" -}}
{{- $affinity := dict }}
{{- if .Values.gpuNodesOnly }}
{{- $terms := include "ingero.gpuTerms" . | fromYamlArray }}
{{- $affinity = dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms)) }}
{{- end }}
{{- if (.Values.affinity).nodeAffinity }}
{{- $_ := unset $affinity "nodeAffinity" }}
{{- end }}
{{- $affinity = merge (deepCopy (.Values.affinity | default dict)) $affinity }}
{{- if $affinity }}
{{- toYaml $affinity }}
{{- end }}
{{- end }}

{{- /* Where a pod of ours may run: the agents, and the pod of `helm test`, whose image is theirs. */}}
{{- define "ingero.scheduling" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "ingero.affinity" . }}
affinity:
  {{- . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ingero.securityContext" -}}
{{- $context := .Values.securityContext -}}
{{- if $context.privileged -}}
privileged: true
{{- else -}}
privileged: false
{{- /* The API server refuses false beside SYS_ADMIN. */}}
{{- if not (has "SYS_ADMIN" ($context.capabilities | default list)) }}
allowPrivilegeEscalation: false
{{- end }}
capabilities:
  drop: [ALL]
  {{- with $context.capabilities }}
  add:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if and $context.appArmorProfile (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
appArmorProfile:
  {{- toYaml $context.appArmorProfile | nindent 2 }}
{{- end }}
{{- with $context.seccompProfile }}
seccompProfile:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
readOnlyRootFilesystem: true
# Capabilities are in force for root only, unless the file has them.
runAsUser: 0
runAsGroup: 0
{{- end }}

{{- /* Whether objects of the Prometheus Operator are rendered: (list $ .Values.podMonitor) */}}
{{- define "ingero.operatorHas" -}}
{{- $root := index . 0 }}{{ $values := index . 1 | default dict }}
{{- if and $values.enabled (or $values.force ($root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
true
{{- end }}
{{- end }}

{{- /* Whether the admission policy is rendered: from 1.30 on, where the API and what it asks for are stable. */}}
{{- define "ingero.admissionPolicy" -}}
{{- if (.Values.admissionPolicy).enabled -}}
{{- if and (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") -}}
true
{{- end }}
{{- end }}
{{- end }}
