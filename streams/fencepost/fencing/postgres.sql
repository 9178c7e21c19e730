-- The highest epoch that this database has seen of each task. fencepost_fence raises SQLSTATE ZF001 for a lower one,
-- which ends the transaction it is called in: nothing that was done in it, before or after, can be committed.
CREATE TABLE IF NOT EXISTS fencepost_epochs (
    namespace text NOT NULL,
    task text NOT NULL,
    epoch bigint NOT NULL CHECK (epoch > 0),
    PRIMARY KEY (namespace, task)
);

CREATE OR REPLACE FUNCTION fencepost_fence(of_namespace text, of_task text, of_epoch bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- The row stays locked until the caller's transaction ends: two runs of one task take turns here.
    INSERT INTO fencepost_epochs AS known (namespace, task, epoch) VALUES (of_namespace, of_task, of_epoch)
    ON CONFLICT (namespace, task) DO UPDATE SET epoch = excluded.epoch WHERE known.epoch <= excluded.epoch;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF001', MESSAGE = 'epoch ' || of_epoch || ' of ' || of_task || ' is stale',
            DETAIL = (SELECT epoch FROM fencepost_epochs WHERE namespace = of_namespace AND task = of_task);
    END IF;
END;
$$;
