# dpkg calls it "remove" or "upgrade ...", rpm with the number of versions that stay.
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
