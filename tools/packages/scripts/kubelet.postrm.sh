if booted; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then
  rm -f /var/lib/kubelot/removed-kubelet
  if [ -d /var/lib/kubelot ]; then rmdir --ignore-fail-on-non-empty /var/lib/kubelot; fi
fi
