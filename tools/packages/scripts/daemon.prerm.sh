# Pods go on running.
if booted; then systemctl stop {{.Unit}}; fi
