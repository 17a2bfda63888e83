-- Roles of a store in PostgreSQL. Create the tables first, as the role that will own them, then run this file as a
-- superuser, or as the owner if it may create roles:
--   refold worker --until-idle --store postgresql://owner@db.example/agents
--   psql postgresql://postgres@db.example/agents -f roles.sql
--   psql postgresql://postgres@db.example/agents -c "CREATE ROLE ann LOGIN PASSWORD '...' IN ROLE refold_worker"
-- For a store in another schema, replace `refold.` and the name after SCHEMA, and leave out CREATE ROLE.
--
-- Workers and commands that write connect as a member of refold_worker. It cannot disable the triggers that keep the
-- log append-only, which only the owner can. Keep the owner's password out of the machines that run agents.

\set ON_ERROR_STOP on
BEGIN;

CREATE ROLE refold_auditor NOLOGIN;  -- reads: verify, audit, show, whatif
CREATE ROLE refold_worker NOLOGIN IN ROLE refold_auditor;  -- drives, answers and cancels runs
CREATE ROLE refold_sealer NOLOGIN IN ROLE refold_auditor;  -- signs checkpoints: seal
CREATE ROLE refold_eraser NOLOGIN IN ROLE refold_worker;  -- erases payloads: erase

GRANT USAGE ON SCHEMA refold TO refold_auditor;
GRANT SELECT ON ALL TABLES IN SCHEMA refold TO refold_auditor;
GRANT INSERT ON refold.run, refold.event, refold.snapshot TO refold_worker;
GRANT UPDATE ON refold.run, refold.snapshot TO refold_worker;
-- UPDATE is for the lock under which a checkpoint is added; a trigger refuses updates.
GRANT INSERT, UPDATE ON refold.sealed_head, refold.seal TO refold_sealer;
GRANT UPDATE (content, salt) ON refold.event TO refold_eraser;
GRANT DELETE ON refold.snapshot TO refold_eraser;

COMMIT;
