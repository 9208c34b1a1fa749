# The crew stops with it; pods go on running.
if booted; then systemctl stop kubelet.service; fi
if has systemctl; then systemctl --quiet disable kubelet.service; fi
{{if not .RPM -}}
# Not in the kubelet's directory, which kubeadm reset empties.
mkdir -p /var/lib/kubelot && touch /var/lib/kubelot/removed-kubelet
{{- end}}
