# Pods go on running.
if booted; then systemctl stop kubelot.target kubelot-shutdown.service kubelot-containers.service; fi
if has systemctl; then systemctl --quiet disable kubelot.target; fi
