if booted; then systemctl daemon-reload; fi
# Pods, their volumes and their logs are not kubelot's own: another node agent may have them by now.
if [ "$1" = purge ]; then
  # A crew that kubelot install has brought meanwhile has its state there, and what kubelot takeover has written.
  if [ ! -e /usr/lib/kubelot/installed.txt ] && [ ! -e /usr/local/lib/kubelot/installed.txt ]; then
    rm -rf /run/kubelot
    rm -f /etc/systemd/system/kubelot-.service.d/15-takeover.conf /etc/systemd/system/kubelot-.service.d/takeover.env
    if [ -d /etc/systemd/system/kubelot-.service.d ]; then
      rmdir --ignore-fail-on-non-empty /etc/systemd/system/kubelot-.service.d
    fi
  fi
  # A kubelet watches some of these directories, and makes them only when it starts.
  if ! { booted && systemctl -q is-active kubelet.service; }; then
    for dir in pods plugins plugins_registry device-plugins pod-resources pki checkpoints; do
      dir=/var/lib/kubelet/$dir
      if [ -d $dir ]; then rmdir --ignore-fail-on-non-empty $dir; fi
    done
    for dir in /var/lib/kubelet /var/log/pods /var/log/containers /etc/kubernetes/manifests /etc/kubernetes/pki \
      /etc/kubernetes/tmp /etc/kubernetes; do
      if [ -d $dir ]; then rmdir --ignore-fail-on-non-empty $dir; fi
    done
  fi
fi
