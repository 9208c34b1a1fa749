mark=/var/lib/kubelot/removed-kubelet
action=upgrade
if [ -e $mark ]; then
  action=install
  rm -f $mark
  rmdir --ignore-fail-on-non-empty /var/lib/kubelot
fi
{{.Start}}
