import belay.Client;
import belay.Held;
import belay.LostException;

/** A task in the background that only the leader runs; when its lead is lost, another replica goes on. */
final class LeaderTask implements Runnable {
    /** What the leader does, again and again: one step, which does not take long. */
    interface Step {
        void run(long term) throws InterruptedException;
    }

    private final Client client;
    private final String name;
    private final String who;
    private final Step step;

    LeaderTask(Client client, String name, String who, Step step) {
        this.client = client;
        this.name = name;
        this.who = who;
        this.step = step;
    }

    /** Runs until its thread is interrupted. */
    @Override
    public void run() {
        while (true) {
            try (Held lead = client.election(name).campaign().body(who).acquire()) {
                while (lead.isHeld()) {
                    step.run(lead.fence());
                }
            } catch (LostException e) {
                System.getLogger("leader").log(System.Logger.Level.WARNING, "another one leads: " + e.getMessage());
            } catch (InterruptedException e) {
                return;
            }
        }
    }
}
