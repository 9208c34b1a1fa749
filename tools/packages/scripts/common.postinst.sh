# Where these aren't there, systemd does it at the first boot.
if has systemd-sysusers && [ -e /usr/lib/sysusers.d/kubelot.conf ]; then systemd-sysusers kubelot.conf; fi
if has systemd-tmpfiles; then systemd-tmpfiles --create kubelot.conf; fi
if booted; then systemctl daemon-reload; fi
# kubelot.target is for the administrator to enable; see 85-kubelot.preset.
if [ $action = install ] && booted; then
  echo "kubelot: set the flags in /etc/default/kubelot, then: systemctl enable --now kubelot.target"
fi
