if booted; then systemctl daemon-reload; fi
