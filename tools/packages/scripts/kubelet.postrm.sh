if booted; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then rm -f /var/lib/kubelet/.kubelot-kubelet; fi
