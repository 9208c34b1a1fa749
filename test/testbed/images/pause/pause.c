/*
 * The sandbox's first process: it keeps the namespaces alive, reaps the
 * orphans of a shared PID namespace, and ends at once when told to.
 */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void)
{
	sigset_t wanted;
	int sig;

	/* Blocked rather than handled: process 1 has no default actions, and
	 * a signal that comes before sigwait must not get lost. */
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGINT);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &wanted, NULL) != 0)
		return 1;
	for (;;) {
		if (sigwait(&wanted, &sig) != 0)
			continue;
		if (sig != SIGCHLD)
			return 0;
		/* One SIGCHLD may stand for many children. */
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}
