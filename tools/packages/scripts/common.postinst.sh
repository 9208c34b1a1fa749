# Where these aren't there, systemd does it at the first boot.
if has systemd-sysusers && [ -e /usr/lib/sysusers.d/kubelot.conf ]; then systemd-sysusers kubelot.conf; fi
# systemd-tmpfiles makes them with the rights that they have if they are there; before systemd 252 it doesn't know how.
for dir in pods plugins plugins_registry; do
  if [ ! -d /var/lib/kubelet/$dir ]; then mkdir -p -m 0750 /var/lib/kubelet/$dir; fi
done
if has systemd-tmpfiles; then
  status=0
  systemd-tmpfiles --create kubelot.conf || status=$?
  # 65 is a line that an older one doesn't know, 73 what somebody has removed meanwhile: it has told of both.
  case $status in 0 | 65 | 73) ;; *) exit $status ;; esac
fi
if booted; then systemctl daemon-reload; fi
# kubelot.target is for the administrator to enable; see 85-kubelot.preset.
if [ $action = install ] && booted; then
  echo "kubelot: set the flags in /etc/default/kubelot, then: systemctl enable --now kubelot.target"
fi
