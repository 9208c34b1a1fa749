if [ $action = install ] && has systemctl; then
  # As the kubelet's own package does, and as kubeadm expects it: enabled by the preset, it waits for its configuration.
  # It fails where the administrator has masked the unit, which then isn't to start.
  systemctl --quiet preset kubelet.service ||
    echo "kubelet.service isn't enabled: systemctl is-enabled kubelet.service" >&2
fi
if booted; then
  systemctl daemon-reload
  # On a node that has joined already, this takes the kubelet's place.
  if [ $action = install ] && [ -e /var/lib/kubelet/config.yaml ] && systemctl -q is-enabled kubelet.service; then
    systemctl --no-block start kubelet.service
  fi
fi
