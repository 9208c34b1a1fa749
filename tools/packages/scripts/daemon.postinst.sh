if booted; then
  systemctl daemon-reload
  if [ $action = upgrade ]; then
    systemctl try-restart {{.Unit}} || echo "{{.Unit}} doesn't start: journalctl -u {{.Unit}}" >&2
  elif systemctl -q is-active kubelot.target; then
    # The administrator has started the crew, and this is one of it.
    systemctl start {{.Unit}} || echo "{{.Unit}} doesn't start: journalctl -u {{.Unit}}" >&2
  fi
fi
