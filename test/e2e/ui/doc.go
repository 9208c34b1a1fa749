// Package ui tests the page of `kubelot ui` in a browser, on a real crew and on a bus whose daemons the test plays.
//
// It needs Debian's package chromium, or a browser that CHROMIUM names. Run it as root:
//
//	GOWORK=off go -C test test ./e2e/ui
//
// UPDATE=1 writes the pictures of docs/ui. Look at them: no test can say whether a page is beautiful.
package ui
