mark=/var/lib/kubelot/removed-kubelet
{{if .RPM -}}
# The package kubelet that this one replaces is removed after this, and its script disables the unit. The rest is done
# after that, by %posttrans.
if [ $action = install ]; then mkdir -p /var/lib/kubelot && touch $mark; fi
{{- else -}}
# After a removal without a purge dpkg calls an installation an upgrade.
if [ -e $mark ]; then
  action=install
  rm -f $mark
  rmdir --ignore-fail-on-non-empty /var/lib/kubelot
fi
{{.Start}}
{{- end}}
