# dpkg calls it "configure <version before, if any>", rpm with the number of versions that are installed then.
case "$1" in
configure) if [ -n "$2" ]; then action=upgrade; else action=install; fi ;;
1) action=install ;;
[2-9]) action=upgrade ;;
*) exit 0 ;;
esac
