mark=/var/lib/kubelet/.kubelot-kubelet
action=upgrade
if [ -e $mark ]; then action=install; fi
rm -f $mark
{{.Start}}
