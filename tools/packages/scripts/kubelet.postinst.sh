mark=/var/lib/kubelet/.kubelot-kubelet
{{if .RPM -}}
# The package kubelet that this one replaces is removed after this, and its script disables the unit. The rest is done
# after that, by %posttrans.
if [ $action = install ]; then mkdir -p /var/lib/kubelet && touch $mark; fi
{{- else -}}
# After a removal without a purge dpkg calls an installation an upgrade.
if [ -e $mark ]; then action=install; fi
rm -f $mark
{{.Start}}
{{- end}}
