# The crew stops with it; pods go on running.
if booted; then systemctl stop kubelet.service; fi
if has systemctl; then systemctl --quiet disable kubelet.service; fi
{{if not .RPM -}}
if [ -d /var/lib/kubelet ]; then touch /var/lib/kubelet/.kubelot-kubelet; fi
{{- end}}
